package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
)

// maxWrites limits concurrent store writes, so that removing a large group does not open a
// connection per instance.
const maxWrites = 32

// errMovedOn means that a record changed since the decision. The next pass decides again.
var errMovedOn = errors.New("the record has changed since the decision")

// records reads and writes single records.
type records struct {
	ledger   Ledger
	writes   *slots // for store writes other than Ledger.Create
	observed *observe.State
	reports  *reporter
	log      *slog.Logger
}

func (r *records) get(id fleet.InstanceID) (fleet.Instance, bool) { return r.ledger.Get(id) }

// create writes a new record. After an error it may exist.
func (r *records) create(ctx context.Context, i fleet.Instance) error {
	if _, err := r.ledger.Create(ctx, i); err != nil {
		return problems.Because(problems.ReasonStorage, fmt.Errorf("record instance %s: %w", i.ID, err))
	}
	return nil
}

// step is the next phase of an instance, and why it comes to that.
type step struct {
	to     fleet.Phase
	reason string
	basis  func() string         // why, for people
	also   func(*fleet.Instance) // what else changes; nil: nothing
	// requested is the change from which the step follows, written with it; nil: none. If it is refused,
	// nothing is written.
	requested *requested
}

// move makes a step, and ends its requested change. It is a no-op if the record is already in this phase or a later one.
func (r *records) move(ctx context.Context, id fleet.InstanceID, s step) error {
	to, reason := s.to, s.reason
	now := time.Now().UTC()
	moved, err := r.update(ctx, id, func(i *fleet.Instance) error {
		if s.requested != nil && s.requested.change(i) != nil || !i.Phase.CanMove(to) || tooLate(*i, reason) {
			return errMovedOn
		}
		i.Phase, i.Reason = to, reason
		if to == fleet.Deleted {
			i.DeletedAt = &now
		}
		if s.also != nil {
			s.also(i)
		}
		return nil
	})
	s.requested.end(moved.ID != "" || err != nil && ctx.Err() == nil, err)
	if err != nil {
		r.observed.DoubtRecord(id, true) // the write may have succeeded
		return fmt.Errorf("move instance %s to %s: %w", id, to, err)
	}
	if moved.Phase == to {
		r.log.Info("instance moved", slog.String("instance", string(id)), slog.String("phase", string(to)),
			slog.String("reason", moved.Reason))
		r.reports.moved(moved, plan.Word(reason), s.basis())
	}
	return nil
}

// tooLate reports whether the reason is a timeout that no longer applies because the instance
// registered after the decision.
func tooLate(i fleet.Instance, reason string) bool {
	word := plan.Word(reason)
	waited := word == plan.ReasonCreateTimeout || word == plan.ReasonRegistrationTimeout
	return waited && i.Phase != fleet.Pending && plan.Word(i.Reason) != word
}

// adopt writes the VM's provider ID and subnet into the instance's record.
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
	free, err := r.writes.acquire(ctx)
	if err != nil {
		return err
	}
	defer free()
	if err := r.ledger.Remove(ctx, id); err != nil {
		return problems.Because(problems.ReasonStorage, fmt.Errorf("remove the record of instance %s: %w", id, err))
	}
	return nil
}

// update changes a record. errMovedOn is no error: the result is then zero.
func (r *records) update(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) (fleet.Instance, error) {
	free, err := r.writes.acquire(ctx)
	if err != nil {
		return fleet.Instance{}, err
	}
	defer free()
	i, err := r.ledger.Update(ctx, id, change)
	switch {
	case errors.Is(err, errMovedOn):
		return fleet.Instance{}, nil
	case err != nil:
		return fleet.Instance{}, problems.Because(problems.ReasonStorage, err)
	default:
		return i, nil
	}
}
