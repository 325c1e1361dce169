package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// Fence is the right of one term of leadership to act.
type Fence interface {
	// Epoch returns the number of the term; later terms have higher ones.
	Epoch() uint64
	// Act runs write and returns its error, or an error that the term could not be confirmed
	// afterwards: then the caller must not act on the write or report its result.
	Act(ctx context.Context, write func(context.Context) error) error
	// RiseAbove ends the term, because an object of a later epoch was found, so that the next
	// term starts above that. It does not block.
	RiseAbove(epoch uint64)
}

// Writer changes records during one term of leadership. Safe for concurrent use; changes of
// one instance are serialized. ctx must end with the term: a method may use all of it to
// resolve a lost reply.
//
// A write may have landed even if its method fails. Memory then holds what is known for sure,
// and is updated by the next conflict.
type Writer struct {
	ledger *Ledger
	fence  Fence
}

// Lead returns the writer of a term.
func (l *Ledger) Lead(f Fence) *Writer {
	l.term.Store(f.Epoch())
	l.records.mu.Lock()
	l.index.found, l.index.made = map[fleet.GroupKey]uint64{}, map[fleet.InstanceID]bool{}
	l.records.mu.Unlock()
	l.records.readAgain()
	l.groupRecords.readAgain()
	return &Writer{ledger: l, fence: f}
}

// Create writes the record of a new, pending instance and returns it with its epoch, rev and
// writer. It may be repeated with the same instance after ErrUnknown, and then finds its own
// record. Another record of that ID is ErrConflict.
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
	k := keyOf(i)
	unlock, err := w.ledger.records.locks.lock(ctx, k)
	if err != nil {
		return fleet.Instance{}, err
	}
	defer unlock()
	stored, err := w.ledger.records.write(ctx, w.fence, k, storedInstance{Instance: &i}, object.IfAbsent())
	return stored.record(), err
}

// Update changes one record: change edits a copy. It must not change the instance's identity,
// nor make an illegal phase transition (ErrPhase). If change returns an error, Update returns
// it and writes nothing. The new record is returned.
func (w *Writer) Update(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) (fleet.Instance, error) {
	updated, err := w.update(ctx, id, change)
	if err != nil {
		return fleet.Instance{}, fmt.Errorf("update record of instance %s: %w", id, err)
	}
	return updated, nil
}

func (w *Writer) update(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) (fleet.Instance, error) {
	k, unlock, err := w.lock(ctx, id)
	if err != nil {
		return fleet.Instance{}, err
	}
	defer unlock()
	old, err := w.current(k)
	if err != nil {
		return fleet.Instance{}, err
	}
	next, changed := old.value, old.value.Clone()
	if err := change(&changed); err != nil {
		return fleet.Instance{}, err
	}
	next.Instance = &changed
	if err := checkChange(*old.value.Instance, changed); err != nil {
		return fleet.Instance{}, err
	}
	next.Epoch, next.Rev, next.Writer = w.fence.Epoch(), old.value.Rev+1, w.ledger.cfg.Writer
	stored, err := w.ledger.records.write(ctx, w.fence, k, next, object.IfMatch(old.etag))
	return stored.record(), err
}

// Remove deletes the record of an instance in phase deleted. Idempotent.
func (w *Writer) Remove(ctx context.Context, id fleet.InstanceID) error {
	if err := w.remove(ctx, id); err != nil {
		return fmt.Errorf("remove record of instance %s: %w", id, err)
	}
	return nil
}

func (w *Writer) remove(ctx context.Context, id fleet.InstanceID) error {
	k, unlock, err := w.lock(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	old, err := w.current(k)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if old.value.Phase != fleet.Deleted {
		return fmt.Errorf("%w: %q, want %q", ErrPhase, old.value.Phase, fleet.Deleted)
	}
	// The request first: if the record is absent and the request is not marked, the record is
	// taken as never written, and created.
	if err := w.retire(ctx, *old.value.Instance); err != nil {
		return fmt.Errorf("retire its request: %w", err)
	}
	key := w.ledger.records.key(k)
	err = w.fence.Act(ctx, func(ctx context.Context) error { return w.ledger.cfg.Store.Delete(ctx, key) })
	if err == nil {
		w.ledger.records.forget(k)
	}
	return err
}

// lock locks the record of an instance that has one.
func (w *Writer) lock(ctx context.Context, id fleet.InstanceID) (k instanceKey, unlock func(), err error) {
	k, _, ok := w.ledger.entry(id)
	if !ok {
		return k, nil, ErrNotFound
	}
	unlock, err = w.ledger.records.locks.lock(ctx, k)
	return k, unlock, err
}

// current returns the record to change, unless a later term has written it. If that is damage,
// it would last, so the term ends: the next one has a higher epoch.
func (w *Writer) current(k instanceKey) (entry[storedInstance], error) {
	e, ok := w.ledger.records.entry(k)
	if !ok {
		return e, ErrNotFound
	}
	if e.value.Epoch > w.fence.Epoch() {
		w.fence.RiseAbove(e.value.Epoch)
		return e, fmt.Errorf("%w: written in epoch %d, this is %d", ErrConflict, e.value.Epoch, w.fence.Epoch())
	}
	return e, nil
}

// checkChange refuses illegal changes.
func checkChange(old, next fleet.Instance) error {
	if next.ID != old.ID || next.Tenant != old.Tenant || next.Group != old.Group || next.OnDemand != old.OnDemand {
		return errors.New("id, tenant, group and on_demand are immutable")
	}
	if old.PublicKeySHA256 != "" && next.PublicKeySHA256 != old.PublicKeySHA256 {
		return errors.New("public_key_sha256 is immutable once set: the nonce was spent for that key")
	}
	if next.Phase != old.Phase && !old.Phase.CanMove(next.Phase) {
		return fmt.Errorf("%w: %q does not follow %q", ErrPhase, next.Phase, old.Phase)
	}
	return nil
}
