package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/record"
)

// ErrRequest is the error of a malformed request object. Its key can't be used, so that no
// second instance is created for it.
var ErrRequest = errors.New("malformed request")

// Request is what an idempotency key names: one on-demand instance, until long after it has
// ended, unless it failed. It is written before the instance's record, so that a repeated call
// on any server continues with the same ID.
type Request struct {
	Tenant    string           `json:"tenant"`
	Key       string           `json:"key"`
	ID        fleet.InstanceID `json:"id"`
	Group     string           `json:"group"`
	Overrides *fleet.Overrides `json:"overrides,omitempty"`
	Namespace string           `json:"namespace,omitempty"` // of the pod
	CreatedAt time.Time        `json:"created_at"`

	// Gone says that the instance's record existed and was deleted. It is set before the
	// delete. So if the record is absent, and the request, read after that, is not Gone, the
	// record was never written. That holds across lost replies and leader changes, because
	// both writes are durable and ordered; comparing ages would only be a guess.
	Gone bool `json:"gone,omitempty"`
	// Failure is why the instance failed, once it is gone; empty if it did not.
	Failure string `json:"failure,omitempty"`
	// Removed says that removal was requested after the instance had failed. The key keeps
	// naming it, so that a repeated creation finds it gone.
	Removed bool `json:"removed,omitempty"`

	Epoch  uint64 `json:"epoch"`
	Rev    uint64 `json:"rev"`
	Writer string `json:"writer"`
}

// requestKey returns "request/{shard}/{tenant}.{key}.json". Tenants have no dots, so the first
// one ends the tenant, whatever the key contains.
func (l *Ledger) requestKey(tenant, key string) (string, error) {
	if err := fleet.CheckName(tenant); err != nil {
		return "", fmt.Errorf("tenant: %w", err)
	}
	if err := fleet.CheckRequestKey(key); err != nil {
		return "", err
	}
	return "request/" + l.cfg.Shard + "/" + tenant + "." + key + suffix, nil
}

// Request reads what a tenant's idempotency key names from the store. It returns ErrNotFound
// if it names nothing, or ErrRequest.
func (l *Ledger) Request(ctx context.Context, tenant, key string) (Request, error) {
	r, err := l.request(ctx, tenant, key)
	if err != nil {
		return Request{}, fmt.Errorf("read request %s of tenant %s: %w", key, tenant, err)
	}
	return r.Request, nil
}

// storedRequest is a request as read.
type storedRequest struct {
	Request
	unknown record.Unknown
	etag    object.ETag
	written time.Time // by the store's clock
}

func (l *Ledger) request(ctx context.Context, tenant, key string) (storedRequest, error) {
	at, err := l.requestKey(tenant, key)
	if err != nil {
		return storedRequest{}, err
	}
	o, err := l.cfg.Store.Get(ctx, at)
	if err != nil {
		return storedRequest{}, err
	}
	r, unknown, err := decodeRequest(o.Body, tenant, key)
	if err == nil {
		err = checkNumbers(r, l.term.Load())
	}
	return storedRequest{Request: r, unknown: unknown, etag: o.ETag, written: o.ModTime}, err
}

// checkNumbers refuses a rev or an epoch that can only be damage.
func checkNumbers(r Request, term uint64) error {
	if err := record.CheckNumber("rev", r.Rev); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if err := inReach(r.Epoch, term); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return nil
}

// decodeRequest decodes a request and checks that it matches its key.
func decodeRequest(body []byte, tenant, key string) (Request, record.Unknown, error) {
	r, unknown, err := record.Decode[Request](body)
	if err != nil {
		return Request{}, record.Unknown{}, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	switch {
	case r.Tenant != tenant:
		return Request{}, record.Unknown{}, fmt.Errorf("%w: tenant: %.80q, want %q as in the object's name", ErrRequest, r.Tenant, tenant)
	case r.Key != key:
		return Request{}, record.Unknown{}, fmt.Errorf("%w: key: %.80q, want %q as in the object's name", ErrRequest, r.Key, key)
	case r.Rev == 0:
		return Request{}, record.Unknown{}, fmt.Errorf("%w: rev: 0, want at least 1", ErrRequest)
	}
	if _, err := fleet.ParseID(string(r.ID)); err != nil {
		return Request{}, record.Unknown{}, fmt.Errorf("%w: id: %w", ErrRequest, err)
	}
	if err := fleet.CheckName(r.Group); err != nil {
		return Request{}, record.Unknown{}, fmt.Errorf("%w: group: %w", ErrRequest, err)
	}
	return r, unknown, nil
}

// Claim makes a key name an instance, unless it names one already, and returns what it names
// now, durably. The caller sets Tenant, Key, ID, Group, Overrides and CreatedAt. Of concurrent
// claims of one key, on any servers, one succeeds, and all return the same. After ErrUnknown
// the claim may have succeeded, or may still.
func (w *Writer) Claim(ctx context.Context, r Request) (Request, error) {
	claimed, err := w.claim(ctx, r)
	if err != nil {
		return Request{}, fmt.Errorf("claim request %s of tenant %s: %w", r.Key, r.Tenant, err)
	}
	return claimed, nil
}

func (w *Writer) claim(ctx context.Context, r Request) (Request, error) {
	at, err := w.ledger.requestKey(r.Tenant, r.Key)
	if err != nil {
		return Request{}, err
	}
	r.Epoch, r.Rev, r.Writer, r.Gone, r.Failure, r.Removed = w.fence.Epoch(), 1, w.ledger.cfg.Writer, false, "", false
	body, err := json.Marshal(r)
	if err != nil {
		return Request{}, fmt.Errorf("encode: %w", err)
	}
	if _, _, err := decodeRequest(body, r.Tenant, r.Key); err != nil {
		return Request{}, err
	}
	_, err = put(ctx, w.fence, w.ledger.cfg.Store, at, body, object.IfAbsent())
	if errors.Is(err, ErrConflict) {
		return w.currentRequest(ctx, r.Tenant, r.Key)
	}
	return r, err
}

// currentRequest returns what a key names now, read under the fence.
func (w *Writer) currentRequest(ctx context.Context, tenant, key string) (r Request, err error) {
	err = w.fence.Act(ctx, func(ctx context.Context) error {
		there, err := w.ledger.request(ctx, tenant, key)
		r = there.Request
		return err
	})
	return r, err
}
