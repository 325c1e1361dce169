// Package mem stores objects in memory. It is the store of tests and benchmarks: strictly
// consistent, without I/O, and usable inside a testing/synctest bubble. Faults are injected by
// wrapping it, see objecttest.
package mem

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
)

// defaultPageSize is S3's.
const defaultPageSize = 1000

// Config is the configuration of a Store. The zero value has no latency.
type Config struct {
	// Latency is the duration of each request; half of it passes before the request takes
	// effect and half before the reply, so that a ctx that ends in the second half leaves a
	// write applied and its reply lost.
	Latency time.Duration

	// PageSize bounds a page of a listing; 0 means 1000.
	PageSize int

	// HashETags makes the etag a hash of the body, as in S3, to detect a writer that does not
	// change its body. Without it, every write has its own etag.
	HashETags bool
}

// Store implements object.Store.
type Store struct {
	cfg Config

	mu      sync.Mutex
	objects map[string]object.Object
	writes  uint64
}

var _ object.Store = (*Store)(nil)

// New returns an empty store.
func New(cfg Config) *Store {
	if cfg.PageSize == 0 {
		cfg.PageSize = defaultPageSize
	}
	return &Store{cfg: cfg, objects: map[string]object.Object{}}
}

// Get implements object.Store.
func (s *Store) Get(ctx context.Context, key string) (object.Object, error) {
	if err := object.CheckKey(key); err != nil {
		return object.Object{}, err
	}
	var o object.Object
	var found bool
	err := s.request(ctx, "get", key, func() {
		o, found = s.objects[key]
		o.Body = bytes.Clone(o.Body)
	})
	if err != nil {
		return object.Object{}, err
	}
	if !found {
		return object.Object{}, fmt.Errorf("get %s: %w", key, object.ErrNotFound)
	}
	return o, nil
}

// Put implements object.Store.
func (s *Store) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	if err := object.CheckKey(key); err != nil {
		return "", err
	}
	body = append([]byte{}, body...)
	var etag object.ETag
	var applied bool
	err := s.request(ctx, "put", key, func() {
		if applied = pre.Holds(s.objects[key].ETag); !applied {
			return
		}
		s.writes++
		etag = s.etag(body)
		s.objects[key] = object.Object{
			Info: object.Info{Key: key, ETag: etag, Size: int64(len(body)), ModTime: time.Now()},
			Body: body,
		}
	})
	if err != nil {
		return "", err
	}
	if !applied {
		return "", fmt.Errorf("put %s: %w", key, object.ErrConflict)
	}
	return etag, nil
}

// Delete implements object.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := object.CheckKey(key); err != nil {
		return err
	}
	return s.request(ctx, "delete", key, func() { delete(s.objects, key) })
}

// List implements object.Store. The token is the last key of the previous page.
func (s *Store) List(ctx context.Context, prefix, token string) (object.Page, error) {
	var page object.Page
	err := s.request(ctx, "list", prefix, func() {
		keys := slices.Sorted(maps.Keys(s.objects))
		keys = slices.DeleteFunc(keys, func(k string) bool { return k <= token || !strings.HasPrefix(k, prefix) })
		if size := object.PageSize(ctx, s.cfg.PageSize); len(keys) > size {
			keys = keys[:size]
			page.Next = keys[len(keys)-1]
		}
		for _, k := range keys {
			page.Objects = append(page.Objects, s.objects[k].Info)
		}
	})
	if err != nil {
		return object.Page{}, err
	}
	return page, nil
}

// request runs effect under the lock, halfway through the latency.
func (s *Store) request(ctx context.Context, verb, key string, effect func()) error {
	if err := s.wait(ctx); err != nil {
		return fmt.Errorf("%s %s: %w: %w", verb, key, object.ErrUnknown, err)
	}
	s.mu.Lock()
	effect()
	s.mu.Unlock()
	if err := s.wait(ctx); err != nil {
		return fmt.Errorf("%s %s: %w: %w", verb, key, object.ErrUnknown, err)
	}
	return nil
}

// wait waits for half of the latency.
func (s *Store) wait(ctx context.Context) error {
	if s.cfg.Latency == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	if retry.Wait(ctx, s.cfg.Latency/2) != nil {
		return ctx.Err()
	}
	return nil
}

func (s *Store) etag(body []byte) object.ETag {
	if !s.cfg.HashETags {
		return object.ETag("w" + strconv.FormatUint(s.writes, 10))
	}
	sum := sha256.Sum256(body)
	return object.ETag(hex.EncodeToString(sum[:16]))
}
