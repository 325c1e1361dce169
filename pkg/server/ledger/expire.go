package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// This file is the end of requests. A delete is unconditional, and one that was sent
// may land late, even after its term: it must not hit a request that has come to name
// another instance. So only a request is deleted that nobody writes any more: its
// instance is gone, and no other may take its place. Reclaim and Keep leave such a one
// alone, and a key is claimed only where there is none. A request that may still be
// reclaimed, or whose record may still be written, is first closed, by a conditional
// write: whichever of the two writes is first, the other one finds it done.
//
// A delete so hits that very request or nothing, unless an earlier delete of the same
// request has landed and the key was claimed since. Two deletes of one request are as
// far apart as two looks at it, which are ExpireInterval apart, also across a change of
// leaders; that is far beyond the time in which a store gives up a request.

// ExpireInterval is the least time from taking over to the first Expire of a term, and
// between two of the same request.
const ExpireInterval = time.Hour

// RequestKey names a request.
type RequestKey struct{ Tenant, Key string }

// OldRequests lists, page by page, the requests that were last written before a moment
// and are of no instance of which there is a record.
func (l *Ledger) OldRequests(ctx context.Context, before time.Time) iter.Seq2[[]RequestKey, error] {
	prefix := "request/" + l.cfg.Shard + "/"
	return func(yield func([]RequestKey, error) bool) {
		for page, err := range object.Pages(ctx, l.cfg.Store, prefix) {
			if err != nil {
				yield(nil, fmt.Errorf("list requests: %w", err))
				return
			}
			if !yield(l.oldRequests(prefix, page, before), nil) {
				return
			}
		}
	}
}

func (l *Ledger) oldRequests(prefix string, page []object.Info, before time.Time) (old []RequestKey) {
	recorded := l.requested()
	for _, o := range page {
		name, ok := strings.CutSuffix(strings.TrimPrefix(o.Key, prefix), suffix)
		tenant, key, dot := strings.Cut(name, ".")
		if k := (RequestKey{tenant, key}); ok && dot && !recorded[k] && o.ModTime.Before(before) {
			old = append(old, k)
		}
	}
	return old
}

// requested are the keys that records name.
func (l *Ledger) requested() map[RequestKey]bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	keys := map[RequestKey]bool{}
	for _, e := range l.entries {
		if e.instance.RequestKey != "" {
			keys[RequestKey{e.instance.Tenant, e.instance.RequestKey}] = true
		}
	}
	return keys
}

// Expiry is what has become of a request that may be over.
type Expiry int

// What Expire did.
const (
	Kept    Expiry = iota // it is not over, or can't be understood
	Closed                // it names its instance for good: it can be deleted by the next Expire
	Removed               // it is deleted
)

// Expire deletes a request that was last written before a moment, or closes it. One
// whose instance has a record stays.
func (w *Writer) Expire(ctx context.Context, k RequestKey, before time.Time) (Expiry, error) {
	e, err := w.expire(ctx, k, before)
	if err != nil {
		return Kept, fmt.Errorf("expire request %s of tenant %s: %w", k.Key, k.Tenant, err)
	}
	return e, nil
}

func (w *Writer) expire(ctx context.Context, k RequestKey, before time.Time) (Expiry, error) {
	at, err := w.ledger.requestKey(k.Tenant, k.Key)
	if err != nil {
		return Kept, nil //nolint:nilerr // an object of another name is none of ours
	}
	r, err := w.ledger.request(ctx, k.Tenant, k.Key)
	switch _, recorded := w.ledger.Get(r.ID); {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrRequest):
		return Kept, nil
	case err != nil:
		return Kept, err
	case recorded, !r.written.Before(before):
		return Kept, nil
	case r.final():
		return Removed, w.fence.Act(ctx, func(ctx context.Context) error { return w.ledger.cfg.Store.Delete(ctx, at) })
	default:
		return w.closeRequest(ctx, k, r.ID)
	}
}

// final reports whether nobody writes the request any more: its instance is gone, and
// the key never names another.
func (r Request) final() bool { return r.Gone && (r.Failure == "" || r.Removed) }

// closeRequest has a request name for good an instance of which there is no record.
func (w *Writer) closeRequest(ctx context.Context, k RequestKey, id fleet.InstanceID) (Expiry, error) {
	if _, err := w.ledger.cfg.Store.Get(ctx, w.ledger.key(k.Tenant, id)); !errors.Is(err, object.ErrNotFound) {
		return Kept, err // there is one, although it is not known here
	}
	closed := false
	_, err := w.amend(ctx, k.Tenant, k.Key, func(there *Request) bool {
		if closed = there.ID == id && !there.final(); closed {
			there.Gone, there.Removed = true, true
		}
		return closed
	})
	switch {
	case errors.Is(err, ErrConflict), errors.Is(err, ErrNotFound):
		return Kept, nil // it is in use
	case err != nil || !closed:
		return Kept, err
	}
	return Closed, nil
}
