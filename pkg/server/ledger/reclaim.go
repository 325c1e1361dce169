package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/record"
)

// Reclaim makes the key of a failed instance name another one, and returns what it names now,
// durably: something else if another call came first, or if removal of the failed instance was
// requested. Otherwise it behaves like Claim.
func (w *Writer) Reclaim(ctx context.Context, failed fleet.InstanceID, r Request) (Request, error) {
	reclaimed, err := w.amend(ctx, r.Tenant, r.Key, func(there *Request) bool {
		if there.ID != failed || there.Removed {
			return false
		}
		r.Rev = there.Rev
		r.Gone, r.Failure, r.Removed = false, "", false
		*there = r
		return true
	})
	if errors.Is(err, ErrConflict) {
		reclaimed, err = w.currentRequest(ctx, r.Tenant, r.Key)
	}
	if err != nil {
		return Request{}, fmt.Errorf("reclaim request %s of tenant %s: %w", r.Key, r.Tenant, err)
	}
	return reclaimed, nil
}

// AttachKey keeps a key naming a failed instance, and returns what it names now: another
// instance if it was reclaimed before. It returns ErrConflict after a concurrent write.
func (w *Writer) AttachKey(ctx context.Context, tenant, key string, id fleet.InstanceID) (Request, error) {
	r, err := w.amend(ctx, tenant, key, func(there *Request) bool {
		change := there.ID == id && !there.Removed
		there.Removed = there.Removed || change
		return change
	})
	if err != nil {
		return Request{}, fmt.Errorf("keep request %s of tenant %s: %w", key, tenant, err)
	}
	return r, nil
}

// amend changes a stored request by a conditional write, and returns the result. change reports
// whether a write is needed.
func (w *Writer) amend(ctx context.Context, tenant, key string, change func(*Request) bool) (Request, error) {
	at, err := w.ledger.requestKey(tenant, key)
	if err != nil {
		return Request{}, err
	}
	r, err := w.ledger.request(ctx, tenant, key)
	if err != nil || !change(&r.Request) {
		return r.Request, err
	}
	r.Epoch, r.Rev, r.Writer = w.fence.Epoch(), r.Rev+1, w.ledger.cfg.Writer
	body, err := record.Encode(r.Request, r.unknown)
	if err != nil {
		return Request{}, fmt.Errorf("encode request: %w", err)
	}
	if _, _, err := decodeRequest(body, tenant, key); err != nil {
		return Request{}, err
	}
	_, err = put(ctx, w.fence, w.ledger.cfg.Store, at, body, object.IfMatch(r.etag))
	return r.Request, err
}

// retire marks the request of an instance, if it has one: the instance's record is about to be
// deleted.
func (w *Writer) retire(ctx context.Context, i fleet.Instance) error {
	if fleet.CheckRequestKey(i.RequestKey) != nil {
		return nil //nolint:nilerr // an invalid key names nothing
	}
	_, err := w.amend(ctx, i.Tenant, i.RequestKey, func(r *Request) bool {
		if r.ID != i.ID || r.Gone {
			return false
		}
		r.Gone = true
		if i.Failed() {
			r.Failure = i.Failure
		}
		return true
	})
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrRequest) {
		return nil // removed or damaged externally: it names nothing
	}
	return err
}
