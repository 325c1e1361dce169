package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/record"
)

// Fence is the right of one term of leadership to act.
type Fence interface {
	// Epoch numbers the term; a later one is higher.
	Epoch() uint64
	// Act runs write and returns when it has returned. The error is write's, or
	// says that the term could not be shown to be still running: then nothing
	// may be done, or told to anybody, on the strength of the write.
	Act(ctx context.Context, write func(context.Context) error) error
	// RiseAbove ends the term, because something of a later epoch was found, so that
	// the next one may begin above that. It returns at once.
	RiseAbove(epoch uint64)
}

// Writer changes records during one term of leadership. It is safe for
// concurrent use; changes of one instance follow each other. Every method needs
// a ctx that ends with the term: it may use all of it to settle a lost reply.
//
// When a method fails, its write may have landed all the same. Memory then
// holds what is known for sure, and the next conflict brings the rest.
type Writer struct {
	ledger *Ledger
	fence  Fence
}

// Lead returns the writer of a term.
func (l *Ledger) Lead(f Fence) *Writer {
	l.term.Store(f.Epoch())
	l.readAgain()
	return &Writer{ledger: l, fence: f}
}

// Create writes the record of a new, pending instance and returns it with its
// epoch, rev and writer. It may be repeated with the same instance after
// ErrUnknown, and then finds its own record. Another record of that id is
// ErrConflict.
func (w *Writer) Create(ctx context.Context, i fleet.Instance) (fleet.Instance, error) {
	i = i.Clone()
	i.Epoch, i.Rev, i.Writer = w.fence.Epoch(), 1, w.ledger.cfg.Writer
	created, err := w.create(ctx, i)
	if err != nil {
		return fleet.Instance{}, fmt.Errorf("create record of instance %s: %w", i.ID, err)
	}
	return created, nil
}

func (w *Writer) create(ctx context.Context, i fleet.Instance) (fleet.Instance, error) {
	if _, err := fleet.ParseID(string(i.ID)); err != nil {
		return fleet.Instance{}, err
	}
	if err := fleet.CheckName(i.Tenant); err != nil {
		return fleet.Instance{}, fmt.Errorf("tenant: %w", err)
	}
	if i.Phase != fleet.Pending {
		return fleet.Instance{}, fmt.Errorf("%w: %q, want %q", ErrPhase, i.Phase, fleet.Pending)
	}
	body, stored, err := encode(i, record.Unknown{})
	if err != nil {
		return fleet.Instance{}, err
	}
	unlock, err := w.ledger.locks.lock(ctx, i.ID)
	if err != nil {
		return fleet.Instance{}, err
	}
	defer unlock()
	return w.write(ctx, stored, body, object.IfAbsent())
}

// Update changes one record: change gets a copy of it and edits that. It must
// not change what names the instance, nor move it to a phase that its present
// one does not lead to (ErrPhase). An error of change is returned and nothing
// is written. The returned record is the new one, whole.
func (w *Writer) Update(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) (fleet.Instance, error) {
	updated, err := w.update(ctx, id, change)
	if err != nil {
		return fleet.Instance{}, fmt.Errorf("update record of instance %s: %w", id, err)
	}
	return updated, nil
}

func (w *Writer) update(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) (fleet.Instance, error) {
	unlock, err := w.ledger.locks.lock(ctx, id)
	if err != nil {
		return fleet.Instance{}, err
	}
	defer unlock()
	old, err := w.current(id)
	if err != nil {
		return fleet.Instance{}, err
	}
	next := old.instance.Clone()
	if err := change(&next); err != nil {
		return fleet.Instance{}, err
	}
	if err := checkChange(old.instance, next); err != nil {
		return fleet.Instance{}, err
	}
	next.Epoch, next.Rev, next.Writer = w.fence.Epoch(), old.instance.Rev+1, w.ledger.cfg.Writer
	body, stored, err := encode(next, old.unknown)
	if err != nil {
		return fleet.Instance{}, err
	}
	return w.write(ctx, stored, body, object.IfMatch(old.etag))
}

// Remove deletes the record of an instance in phase deleted. Removing an absent
// one succeeds.
func (w *Writer) Remove(ctx context.Context, id fleet.InstanceID) error {
	if err := w.remove(ctx, id); err != nil {
		return fmt.Errorf("remove record of instance %s: %w", id, err)
	}
	return nil
}

func (w *Writer) remove(ctx context.Context, id fleet.InstanceID) error {
	unlock, err := w.ledger.locks.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	old, err := w.current(id)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if old.instance.Phase != fleet.Deleted {
		return fmt.Errorf("%w: %q, want %q", ErrPhase, old.instance.Phase, fleet.Deleted)
	}
	// The request first: an absent record whose request does not say so was never
	// there, and is made.
	if err := w.retire(ctx, old.instance); err != nil {
		return fmt.Errorf("retire its request: %w", err)
	}
	key := w.ledger.key(old.instance.Tenant, id)
	err = w.fence.Act(ctx, func(ctx context.Context) error { return w.ledger.cfg.Store.Delete(ctx, key) })
	if err != nil {
		return err
	}
	w.ledger.drop(id)
	w.ledger.cache.deleteInstance(key)
	return nil
}

// current returns the record to change, unless a later term has written it.
func (w *Writer) current(id fleet.InstanceID) (entry, error) {
	e, ok := w.ledger.entry(id)
	if !ok {
		return entry{}, ErrNotFound
	}
	return e, w.outranked(e.instance)
}

// outranked refuses to change what a later term has written. It would be so for
// ever, should that be damage, so the term ends: the next is a later one.
func (w *Writer) outranked(i fleet.Instance) error {
	if i.Epoch > w.fence.Epoch() {
		w.fence.RiseAbove(i.Epoch)
		return fmt.Errorf("%w: written in epoch %d, this is %d", ErrConflict, i.Epoch, w.fence.Epoch())
	}
	return nil
}

// write puts a record whose lock is held. Memory follows the object even if the
// fence then forbids to speak of it.
func (w *Writer) write(ctx context.Context, e entry, body []byte, pre object.Precondition) (fleet.Instance, error) {
	i := e.instance
	key := w.ledger.key(i.Tenant, i.ID)
	etag, err := w.put(ctx, key, body, pre)
	if etag != "" {
		e.etag = etag
		w.ledger.set(e)
		w.ledger.cache.putInstance(key, row{etag: etag, body: body})
	}
	if errors.Is(err, ErrConflict) {
		err = w.conflict(ctx, i, body, err)
	}
	if err != nil {
		return fleet.Instance{}, err
	}
	return i, nil
}

// conflict looks at what is there instead. It may be this very write, sent
// before by a call whose outcome remained unknown.
func (w *Writer) conflict(ctx context.Context, i fleet.Instance, body []byte, err error) error {
	if _, reloadErr := w.ledger.reload(ctx, i.Tenant, i.ID); reloadErr != nil {
		return errors.Join(err, reloadErr)
	}
	if m, ok := w.ledger.malformedAt(w.ledger.key(i.Tenant, i.ID)); ok {
		return fmt.Errorf("%w: the stored record can't be understood any more: %w", err, m.Err)
	}
	e, ok := w.ledger.entry(i.ID)
	if !ok {
		return err
	}
	there, _, encodeErr := encode(e.instance, e.unknown)
	if encodeErr != nil || !bytes.Equal(there, body) {
		return err
	}
	return w.fence.Act(ctx, func(context.Context) error { return nil })
}

// put is a conditional write under the fence. The etag is set if the write
// landed for sure, with or without an error.
func (w *Writer) put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	var etag object.ETag
	err := w.fence.Act(ctx, func(ctx context.Context) (err error) {
		etag, err = object.Settle(ctx, w.ledger.cfg.Store, key, body, pre)
		return err
	})
	return etag, err
}

// checkChange forbids what no change may do.
func checkChange(old, next fleet.Instance) error {
	if next.ID != old.ID || next.Tenant != old.Tenant || next.Group != old.Group || next.OnDemand != old.OnDemand {
		return errors.New("id, tenant, group and on_demand never change")
	}
	if old.PublicKeySHA256 != "" && next.PublicKeySHA256 != old.PublicKeySHA256 {
		return errors.New("public_key_sha256 never changes once it is set: the nonce was spent for that key")
	}
	if next.Phase != old.Phase && !old.Phase.CanMove(next.Phase) {
		return fmt.Errorf("%w: %q does not follow %q", ErrPhase, next.Phase, old.Phase)
	}
	return nil
}
