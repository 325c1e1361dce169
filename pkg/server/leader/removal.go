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

// Find returns an instance as its record says, from memory if it is there.
func (o *onDemand) Find(ctx context.Context, tenant string, id fleet.InstanceID) (fleet.Instance, error) {
	_, known := o.records.Get(id)
	i, ok, err := o.records.Find(ctx, tenant, id)
	if ok && !known {
		o.touched(i.GroupKey(), id)
	}
	switch {
	case err != nil:
		return fleet.Instance{}, kind(err)
	case !ok || i.Tenant != tenant:
		return fleet.Instance{}, o.absent(ctx, id)
	}
	return i, nil
}

// absent is the answer for an instance that has no record, or is another tenant's. The
// caller takes it for gone, so a leader that was deposed without knowing it must not give
// it: the next one may have made that instance.
//
// No write proves it, as one does where a group is not there, because none is needed: the
// only writes that make a record are if-absent creates, no caller is told an id before its
// create has landed, and none that lands late is of an id that was refused. One of a leader
// before that no key names was never acted on, and becomes a tombstone. Of any other the
// caller knows the key at most, and a removal by key writes the record itself, so that a
// create of it comes too late (DeleteByKey). Everything that a record which is
// there has to remember, such as that it is to be removed, is in each of its later
// versions, whichever of two writes of it lands.
func (o *onDemand) absent(ctx context.Context, id fleet.InstanceID) error {
	if err := o.cfg.Fence.Check(ctx); err != nil {
		return kind(err)
	}
	return noSuchInstance(id)
}

// change changes a record of the tenant's durably and has the loop look at it.
func (o *onDemand) change(ctx context.Context, tenant string, id fleet.InstanceID, change func(*fleet.Instance) error) error {
	i, err := o.Find(ctx, tenant, id)
	if err != nil {
		return err
	}
	var refused error // as change said it, without what the ledger puts in front
	_, err = o.records.Update(ctx, id, func(i *fleet.Instance) error {
		refused = change(i)
		return refused
	})
	switch {
	case errors.Is(refused, errSettled):
		return kind(o.cfg.Fence.Check(ctx))
	case refused != nil:
		return refused
	case errors.Is(err, ledger.ErrNotFound):
		return o.absent(ctx, id)
	}
	o.touched(i.GroupKey(), id)
	return kind(err)
}

// noSuchInstance is the answer for one that is not there, and for another tenant's.
func noSuchInstance(id fleet.InstanceID) error { return rpc.NotFound.Errorf("no such instance %s", id) }
