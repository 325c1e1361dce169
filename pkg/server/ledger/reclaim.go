package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/record"
)

// Reclaim makes a key that stands for an instance which came to nothing stand for
// another, and returns what it stands for now, which is durable: something else when
// others came first, or when the removal of the old one was asked for. Otherwise as
// Claim.
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
		reclaimed, err = w.standing(ctx, r.Tenant, r.Key)
	}
	if err != nil {
		return Request{}, fmt.Errorf("reclaim request %s of tenant %s: %w", r.Key, r.Tenant, err)
	}
	return reclaimed, nil
}

// Keep has a key go on to name an instance that came to nothing, and returns what it
// stands for now: another instance when it was reclaimed before. It fails with
// ErrConflict when others write at the same time.
func (w *Writer) Keep(ctx context.Context, tenant, key string, id fleet.InstanceID) (Request, error) {
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

// amend changes a request as it is stored, by a conditional write, and returns what
// became of it. change reports whether there is anything to write.
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
	_, err = w.put(ctx, at, body, object.IfMatch(r.etag))
	return r.Request, err
}

// retire has the request of an instance, if it has one, say that the instance's
// record is about to leave the store.
func (w *Writer) retire(ctx context.Context, i fleet.Instance) error {
	if fleet.CheckRequestKey(i.RequestKey) != nil {
		return nil //nolint:nilerr // what is no key names nothing
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
		return nil // removed or broken by hand: it names nothing any more
	}
	return err
}
