package delivery

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/files"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
)

// Secrets is implemented by secrets.Secrets.
type Secrets interface {
	Get(ctx context.Context, name string) ([]byte, error)
}

// Storage is implemented by object.Store.
type Storage interface {
	Get(ctx context.Context, key string) (object.Object, error)
	List(ctx context.Context, prefix, token string) (object.Page, error)
}

const (
	// sourceLife is how long a read value is cached. An idle shard should send few requests; a
	// config refresh delivers a changed source at once.
	sourceLife = 15 * time.Minute
	// readTimeout bounds a read. A read continues for other callers when its first caller
	// leaves.
	readTimeout = 10 * time.Second
	// Limits of the cache. Sources beyond them are read again when needed.
	maxSources     = 1024
	maxSourceBytes = 64 << 20
)

// source names a secret or an object.
type source struct{ kind, name string }

// unreachable wraps an error that does not tell whether the source exists.
type unreachable struct{ err error }

func (e *unreachable) Error() string { return e.err.Error() }
func (e *unreachable) Unwrap() error { return e.err }

// sources reads secrets and objects; concurrent callers share one read. It is safe for
// concurrent use.
type sources struct {
	secrets Secrets
	storage Storage
	now     func() time.Time
	changed func() // called when a source has changed

	mu    sync.Mutex
	known map[source]*reading
	bytes int
}

// fetched is the content of a source, or of a rendered file. It is immutable.
type fetched struct {
	body []byte
	sum  Sum
}

// reading is the cached state of one source.
type reading struct {
	content  fetched
	etag     object.ETag   // of an object
	err      error         // of the last read
	until    time.Time     // when it expires; zero: expired
	failures int           // consecutive
	under    chan struct{} // closed when the read in progress ends; nil: none
	outdated bool          // the read in progress may have started before a change
	readOnce bool          // was read without an error at least once
	usedAt   time.Time     // last requested
}

// get returns a source's content, which must not be modified.
func (s *sources) get(ctx context.Context, src source) (fetched, error) {
	for {
		s.mu.Lock()
		r := s.known[src]
		if r == nil {
			r = &reading{}
			s.makeRoom()
			s.known[src] = r
		}
		r.usedAt = s.now()
		if r.under == nil && s.now().Before(r.until) {
			defer s.mu.Unlock()
			return r.content, r.err
		}
		if r.under == nil {
			r.under = make(chan struct{})
			go s.read(context.WithoutCancel(ctx), src, r)
		}
		under := r.under
		s.mu.Unlock()
		select {
		case <-under:
		case <-ctx.Done():
			return fetched{}, &unreachable{ctx.Err()}
		}
	}
}

// read reads a source again.
func (s *sources) read(ctx context.Context, src source, r *reading) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	body, etag, err := s.fetch(ctx, src, r)
	content := fetched{body, sha256.Sum256(body)}
	s.mu.Lock()
	under, altered := r.under, false
	r.under = nil
	if err == nil {
		altered = r.readOnce && content.sum != r.content.sum
		s.bytes += len(content.body) - len(r.content.body)
		r.content, r.etag, r.err, r.failures, r.readOnce = content, etag, nil, 0, true
		r.until = s.now().Add(sourceLife)
	} else {
		r.err, r.failures = err, r.failures+1
		r.until = s.now().Add(readBackoff().Delay(r.failures))
	}
	if r.outdated {
		r.until, r.outdated = time.Time{}, false
	}
	close(under)
	s.mu.Unlock()
	if altered {
		s.changed()
	}
}

// fetch reads from the secrets or the store. It first lists an object's size and etag: an
// object that is too large or has not changed is not read.
func (s *sources) fetch(ctx context.Context, src source, old *reading) ([]byte, object.ETag, error) {
	if src.kind == kindSecret {
		value, err := s.secrets.Get(ctx, src.name)
		if errors.Is(err, object.ErrUnknown) {
			err = &unreachable{err}
		}
		return value, "", err
	}
	if !strings.HasPrefix(src.name, config.StoragePrefix) || object.CheckKey(src.name) != nil {
		return nil, "", fmt.Errorf("%.80q is not under %s", src.name, config.StoragePrefix)
	}
	info, found, err := first(ctx, s.storage, src.name)
	if err != nil {
		return nil, "", &unreachable{err}
	}
	// In key order, the key itself sorts before keys that it is a prefix of. A listing may
	// lag, so an object that is not listed is read all the same.
	if found && info.Key == src.name {
		if err := allowedSize(src.name, info.Size); err != nil {
			return nil, "", err
		}
		if info.ETag == old.etag && old.readOnce {
			return old.content.body, old.etag, nil
		}
	}
	o, err := s.storage.Get(ctx, src.name)
	switch {
	case errors.Is(err, object.ErrNotFound):
		return nil, "", fmt.Errorf("object %s does not exist", src.name)
	case err != nil:
		return nil, "", &unreachable{err}
	}
	if err := allowedSize(src.name, int64(len(o.Body))); err != nil {
		return nil, "", err
	}
	return o.Body, o.ETag, nil
}

// allowedSize checks the size of an object, in bytes.
func allowedSize(name string, size int64) error {
	if size > files.MaxFileSize {
		return fmt.Errorf("%s has %d bytes: at most %d are allowed", name, size, files.MaxFileSize)
	}
	return nil
}

// first returns the first object whose key begins with prefix.
func first(ctx context.Context, s Storage, prefix string) (info object.Info, found bool, err error) {
	for page, err := range object.Pages(ctx, s, prefix) {
		if err != nil || len(page) > 0 {
			return append(page, object.Info{})[0], err == nil, err
		}
	}
	return object.Info{}, false, nil
}

// expire makes the next use of every source read it again.
func (s *sources) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.known {
		r.until, r.failures, r.outdated = time.Time{}, 0, r.under != nil
	}
}

// makeRoom evicts sources beyond the limits, expired ones first.
func (s *sources) makeRoom() {
	now := s.now()
	for _, expired := range []bool{true, false} {
		for src, r := range s.known {
			if len(s.known) < maxSources && s.bytes <= maxSourceBytes {
				return
			}
			if r.under == nil && (!expired || !now.Before(r.until)) {
				s.bytes -= len(r.content.body)
				delete(s.known, src)
			}
		}
	}
}

// readBackoff is the back-off after consecutive failed reads of a source.
func readBackoff() retry.Backoff {
	return retry.Backoff{First: 5 * time.Second, Limit: 5 * time.Minute}
}
