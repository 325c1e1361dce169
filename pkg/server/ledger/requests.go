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

// ErrRequest is the error of a request object that can't be understood. It keeps
// its key from naming anything, so that no second instance comes of it.
var ErrRequest = errors.New("malformed request")

// Request is what an idempotency key stands for: one on-demand instance, until long
// after its end, unless that came to nothing. It is written before the instance's
// record, so that whoever is asked again, on whichever server, goes on with the same
// id.
type Request struct {
	Tenant    string           `json:"tenant"`
	Key       string           `json:"key"`
	ID        fleet.InstanceID `json:"id"`
	Group     string           `json:"group"`
	Overrides *fleet.Overrides `json:"overrides,omitempty"`
	CreatedAt time.Time        `json:"created_at"`

	// Gone says that the instance had a record, and has none any more. A record
	// leaves the store only after its request says so; hence one whose request,
	// read after the record was found to be absent, does not say so was never
	// written. That holds across lost replies and changes of the leader, because
	// both are durable and in this order; an age to compare would only be a guess.
	Gone bool `json:"gone,omitempty"`
	// Failure is that of the instance, once it is gone: why it came to nothing.
	Failure string `json:"failure,omitempty"`
	// Removed says that somebody asked for the removal of an instance that had come
	// to nothing already. The key goes on to name it, so that whoever repeats the
	// creation finds it gone.
	Removed bool `json:"removed,omitempty"`

	Epoch  uint64 `json:"epoch"`
	Rev    uint64 `json:"rev"`
	Writer string `json:"writer"`
}

// requestKey is "request/{shard}/{tenant}.{key}.json". No tenant has a dot, so the
// first one ends it, whatever the key holds.
func (l *Ledger) requestKey(tenant, key string) (string, error) {
	if err := fleet.CheckName(tenant); err != nil {
		return "", fmt.Errorf("tenant: %w", err)
	}
	if err := fleet.CheckRequestKey(key); err != nil {
		return "", err
	}
	return "request/" + l.cfg.Shard + "/" + tenant + "." + key + suffix, nil
}

// Request reads from the store what a tenant's idempotency key stands for. It
// fails with ErrNotFound when that is nothing yet, and with ErrRequest.
func (l *Ledger) Request(ctx context.Context, tenant, key string) (Request, error) {
	r, err := l.request(ctx, tenant, key)
	if err != nil {
		return Request{}, fmt.Errorf("read request %s of tenant %s: %w", key, tenant, err)
	}
	return r.Request, nil
}

// storedRequest is a request as it was read.
type storedRequest struct {
	Request
	unknown record.Unknown
	etag    object.ETag
	written time.Time // by the clock of the store
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
		err = l.checkNumbers(r)
	}
	return storedRequest{Request: r, unknown: unknown, etag: o.ETag, written: o.ModTime}, err
}

// checkNumbers refuses those that can only be damage.
func (l *Ledger) checkNumbers(r Request) error {
	if err := record.CheckNumber("rev", r.Rev); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if err := l.inReach(r.Epoch); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return nil
}

// decodeRequest reads a request and checks that it is the one its key speaks of.
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

// Claim makes a key stand for an instance, unless it stands for one already, and
// returns what it stands for now, which is durable. Tenant, Key, ID, Group,
// Overrides and CreatedAt are the caller's. Of several that claim one key at the
// same time, on whichever servers, one succeeds, and all are told the same. After
// ErrUnknown the claim may have succeeded, or may still.
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
	_, err = w.put(ctx, at, body, object.IfAbsent())
	if errors.Is(err, ErrConflict) {
		return w.standing(ctx, r.Tenant, r.Key)
	}
	return r, err
}

// standing is what a key stands for now, as this term may tell.
func (w *Writer) standing(ctx context.Context, tenant, key string) (r Request, err error) {
	err = w.fence.Act(ctx, func(ctx context.Context) error {
		there, err := w.ledger.request(ctx, tenant, key)
		r = there.Request
		return err
	})
	return r, err
}

// OnDemand counts a tenant's on-demand instances that are not deleted.
func (l *Ledger) OnDemand(tenant string) int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	n := 0
	for _, e := range l.entries {
		if e.instance.OnDemand && e.instance.Tenant == tenant && e.instance.Phase != fleet.Deleted {
			n++
		}
	}
	return n
}
