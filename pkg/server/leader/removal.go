package leader

import (
	"context"
	"errors"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// errSettled says that a record holds already what it was to be told.
var errSettled = errors.New("nothing to change")

// DeleteInstance has an instance's record say that it is to go; what follows is the
// plan's. The first word counts.
func (o *onDemand) DeleteInstance(ctx context.Context, tenant string, id fleet.InstanceID) error {
	_, err := o.remove(ctx, tenant, id)
	return kind(err)
}

// remove does so, and returns what the instance's key names then: another one when
// this one had failed, and the creation was repeated.
func (o *onDemand) remove(ctx context.Context, tenant string, id fleet.InstanceID) (names fleet.InstanceID, err error) {
	now := o.cfg.Now().UTC()
	err = o.change(ctx, tenant, id, func(i *fleet.Instance) error {
		failing := i.Phase == fleet.Deleting && i.Failed() // its key is not to become free
		if i.Phase.Ending() && !failing || i.RemovalAskedAt != nil {
			return errSettled
		}
		i.RemovalAskedAt = &now
		return nil
	})
	if i, ok := o.records.Get(id); err == nil && ok && i.Phase == fleet.Deleted && i.Failed() && i.RequestKey != "" {
		return o.keep(ctx, i)
	}
	return id, err
}

// AcknowledgeDrained has a draining instance's record say that nothing is left on
// it. The first word counts.
func (o *onDemand) AcknowledgeDrained(ctx context.Context, tenant string, id fleet.InstanceID) error {
	now := o.cfg.Now().UTC()
	return o.change(ctx, tenant, id, func(i *fleet.Instance) error {
		switch {
		case i.Phase.Ending() || i.Drain != nil && i.Drain.AckedAt != nil:
			return errSettled
		case i.Phase != fleet.Draining || i.Drain == nil:
			return rpc.Precondition.Errorf("instance %s is %s, not draining", id, i.Phase)
		}
		i.Drain.AckedAt = &now
		return nil
	})
}

// change changes a record of the tenant's durably and has the loop look at it.
func (o *onDemand) change(ctx context.Context, tenant string, id fleet.InstanceID, change func(*fleet.Instance) error) error {
	i, ok := o.records.Get(id)
	if !ok || i.Tenant != tenant {
		// A leader that does not know yet that it is none would miss what the next
		// one made, and the caller would take it for gone.
		if err := o.cfg.Fence.Check(ctx); err != nil {
			return kind(err)
		}
		return noSuchInstance(id)
	}
	var refused error // as change said it, without what the ledger puts in front
	_, err := o.records.Update(ctx, id, func(i *fleet.Instance) error {
		refused = change(i)
		return refused
	})
	switch {
	case errors.Is(refused, errSettled):
		return kind(o.cfg.Fence.Check(ctx))
	case refused != nil:
		return refused
	case errors.Is(err, ledger.ErrNotFound):
		return noSuchInstance(id)
	}
	o.touched(i.GroupKey(), id)
	return kind(err)
}

// noSuchInstance is the answer for one that is not there, and for another tenant's.
func noSuchInstance(id fleet.InstanceID) error { return rpc.NotFound.Errorf("no such instance %s", id) }
