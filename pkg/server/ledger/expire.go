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

// This file deletes old requests. A delete is unconditional, and may land late, even after its
// term: it must not hit a request that names another instance by then. So only a final request
// is deleted, which is never written again: its instance is gone, and no other may replace it.
// Reclaim and AttachKey leave a final request unchanged, and Claim writes only if there is no
// request. A request that may still be reclaimed, or whose record may still be written, is
// first closed by a conditional write: of two concurrent writes, the second one fails.
//
// A late delete therefore hits that request or nothing, unless an earlier delete of the
// same request has landed and the key was claimed again since. Two deletes of one request
// are at least ExpireInterval apart, also across a change of leaders, and a store gives up
// a call long before that.

// ExpireInterval is the minimum time from the takeover to the first Expire of a term, and
// between two of the same request.
const ExpireInterval = time.Hour

// RequestKey identifies a request.
type RequestKey struct{ Tenant, Key string }

// OldRequests yields, page by page, the requests that were last written before a time and whose
// instance has no record.
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

// requested returns the request keys in records.
func (l *Ledger) requested() map[RequestKey]bool {
	l.records.mu.RLock()
	defer l.records.mu.RUnlock()
	keys := map[RequestKey]bool{}
	for k, e := range l.records.entries {
		if e.value.RequestKey != "" {
			keys[RequestKey{k.tenant, e.value.RequestKey}] = true
		}
	}
	return keys
}

// Expiry is the result of Expire.
type Expiry int

// What Expire did with the request.
const (
	Kept    Expiry = iota // in use, or malformed
	Closed                // it names its instance permanently; the next Expire can delete it
	Removed               // deleted
)

// Expire deletes or closes a request that was last written before a time. It keeps a request
// whose instance has a record.
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
		return Kept, nil //nolint:nilerr // an object with another name is not a request
	}
	r, err := w.ledger.request(ctx, k.Tenant, k.Key)
	switch _, recorded := w.ledger.Get(r.ID); {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrRequest), errors.Is(err, object.ErrRefused):
		return Kept, nil // a refused one is tried again by the next sweep
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

// final reports whether the request is never written again: its instance is gone, and the key
// never names another.
func (r Request) final() bool { return r.Gone && (r.Failure == "" || r.Removed) }

// closeRequest makes the request of an instance without a record final.
func (w *Writer) closeRequest(ctx context.Context, k RequestKey, id fleet.InstanceID) (Expiry, error) {
	_, err := w.ledger.cfg.Store.Get(ctx, w.ledger.records.key(instanceKey{k.Tenant, id}))
	switch {
	case errors.Is(err, object.ErrRefused):
		return Kept, nil
	case !errors.Is(err, object.ErrNotFound):
		return Kept, err // the record is not in memory
	}
	closed := false
	_, err = w.amend(ctx, k.Tenant, k.Key, func(there *Request) bool {
		if closed = there.ID == id && !there.final(); closed {
			there.Gone, there.Removed = true, true
		}
		return closed
	})
	switch {
	case errors.Is(err, ErrConflict), errors.Is(err, ErrNotFound):
		return Kept, nil // in use
	case err != nil || !closed:
		return Kept, err
	}
	return Closed, nil
}
