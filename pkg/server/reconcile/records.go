package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// maxWrites bounds the store writes under way, so that the end of a large group
// does not open a connection per instance.
const maxWrites = 32

// errMovedOn says that a record is no longer what the decision was made for. The
// next pass decides about what it is now.
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
		if !i.Phase.CanMove(to) {
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
