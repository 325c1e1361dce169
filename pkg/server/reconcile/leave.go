package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/plan"
)

// leave takes one step of an instance's way out.
func (l *Loop) leave(ctx context.Context, a plan.Action) error {
	switch a.Kind {
	case plan.Drain:
		return l.records.move(ctx, a.ID, fleet.Draining, a.Reason, func(i *fleet.Instance) {
			i.Drain = &fleet.Drain{Reason: a.Reason, DeleteAt: a.At.UTC()}
		})
	case plan.Delete:
		return l.remove(ctx, a)
	case plan.Tombstone:
		return l.records.move(ctx, a.ID, fleet.Deleted, a.Reason, l.failureOf(a))
	case plan.Prune:
		return l.records.prune(ctx, a.ID)
	default:
		return fmt.Errorf("no step of an instance: %s", a.Kind)
	}
}

// remove asks the provider to delete an instance, which its record says first.
// The poller then watches for the end, and the tombstone is another step.
func (l *Loop) remove(ctx context.Context, a plan.Action) error {
	was, _ := l.cfg.Ledger.Get(a.ID)
	b := l.observed.get(a.ID)
	why := b.withWhy(a.Reason)
	if err := l.records.move(ctx, a.ID, fleet.Deleting, why, l.failureOf(a)); err != nil {
		return err
	}
	if was.OnDemand || !l.pacing.failing(was.GroupKey()) { // else that is told
		l.fail(ctx, diedYoung(was, a.Reason, why), was.GroupKey(), a.ID)
	}
	r, ok := l.cfg.Ledger.Get(a.ID)
	if !ok || r.Phase != fleet.Deleting {
		return nil
	}
	l.deletions.begin(was, r, time.Now())
	// What holds it back is of a create, or of the delete before.
	l.observed.with(a.ID, func(b *observation) { b.retryAt = time.Time{} })
	l.cfg.Changed(r.GroupKey(), a.ID) // its streams are to be cut now, not when the provider has answered
	g, _ := l.cfg.Groups.Group(r.GroupKey())
	l.balancer.Deregister(ctx, g, r) // before its machine goes
	l.lookOnce(ctx, r)
	return l.askedToDelete(r, l.cloud.remove(ctx, refOf(r)))
}

// lookOnce asks, just before it is deleted, for a VM whose create may be under way
// still, where reads are consistent. Once shown, its absence is believed; otherwise
// its end could be told from its being slow to land only after a while.
func (l *Loop) lookOnce(ctx context.Context, r fleet.Instance) {
	b, now := l.observed.get(r.ID), time.Now()
	if r.Provider.ID != "" || b.shown || !l.observed.consistent || !now.Before(b.mayHaveAsked(r, l.observed.began).Add(believeNotFound)) {
		return
	}
	if got := l.cloud.get(ctx, refOf(r)); got.err == nil { // else it only costs time
		l.observed.see(r, got, time.Now())
	}
}

// maxWrites bounds the store writes under way, so that the end of a large group
// does not open a connection per instance.
const maxWrites = 32

// errMovedOn says that a record is no longer what the decision was made for.
// The next pass decides about what it is now.
var errMovedOn = errors.New("the record has moved on")

// records writes what becomes of recorded instances.
type records struct {
	ledger   Ledger
	writes   *slots // for the store writes that are not part of a create
	observed *observations
	log      *slog.Logger
}

// move writes an instance's next phase, with the reason that is kept for it. A
// record that is there already, or beyond, is left alone.
func (r *records) move(ctx context.Context, id fleet.InstanceID, to fleet.Phase, reason string, also func(*fleet.Instance)) error {
	now := time.Now().UTC()
	moved, err := r.update(ctx, id, func(i *fleet.Instance) error {
		if !i.Phase.CanMove(to) || tooLate(*i, reason) {
			return errMovedOn
		}
		i.Phase, i.Reason = to, reason
		if to == fleet.Deleted {
			i.DeletedAt = &now
		}
		if also != nil {
			also(i)
		}
		return nil
	})
	if err != nil {
		r.observed.with(id, func(b *observation) { b.recordDoubtful = true }) // it may have moved all the same
		return fmt.Errorf("move instance %s to %s: %w", id, to, err)
	}
	if moved.Phase == to {
		r.log.Info("instance moved", slog.String("instance", string(id)), slog.String("phase", string(to)),
			slog.String("reason", moved.Reason))
	}
	return nil
}

// tooLate reports whether an instance is not to end for a reason that only one which
// never registered can have, since it has registered after that was decided.
func tooLate(i fleet.Instance, reason string) bool {
	waited := reason == plan.ReasonCreateTimeout || reason == plan.ReasonRegistrationTimeout
	return waited && i.Phase != fleet.Pending && i.Reason != reason
}

// adopt records which VM an instance is.
func (r *records) adopt(ctx context.Context, id fleet.InstanceID, vm provider.VM) error {
	_, err := r.update(ctx, id, func(i *fleet.Instance) error {
		if i.Provider.ID != "" || i.Phase == fleet.Deleted {
			return errMovedOn
		}
		i.Provider.ID, i.Provider.Subnet = vm.ProviderID, vm.Subnet
		return nil
	})
	if err != nil {
		return fmt.Errorf("record the VM of instance %s: %w", id, err)
	}
	return nil
}

// prune removes a tombstone.
func (r *records) prune(ctx context.Context, id fleet.InstanceID) error {
	free, err := r.writes.take(ctx)
	if err != nil {
		return err
	}
	defer free()
	if err := r.ledger.Remove(ctx, id); err != nil {
		return because(ReasonStorage, fmt.Errorf("remove the record of instance %s: %w", id, err))
	}
	return nil
}

// update changes a record. One that has moved on is no error.
func (r *records) update(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) (fleet.Instance, error) {
	free, err := r.writes.take(ctx)
	if err != nil {
		return fleet.Instance{}, err
	}
	defer free()
	i, err := r.ledger.Update(ctx, id, change)
	switch {
	case errors.Is(err, errMovedOn):
		return fleet.Instance{}, nil
	case err != nil:
		return fleet.Instance{}, because(ReasonStorage, err)
	default:
		return i, nil
	}
}
