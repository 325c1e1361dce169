package ondemand

import (
	"context"
	"errors"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/writes"
)

// errSettled says that a record needs no change.
var errSettled = errors.New("nothing to change")

// DeleteInstance requests the removal of an instance in its record; the loop does the rest.
// Idempotent: the first request counts.
func (o *Service) DeleteInstance(ctx context.Context, tenant string, id fleet.InstanceID) error {
	_, err := o.remove(ctx, tenant, id)
	return writes.Kind(err)
}

// remove is DeleteInstance, and returns the ID that the instance's key names then: a different
// one if this instance had failed and the creation was repeated.
func (o *Service) remove(ctx context.Context, tenant string, id fleet.InstanceID) (names fleet.InstanceID, err error) {
	now := o.cfg.Now().UTC()
	err = o.change(ctx, tenant, id, removalAsked(), func(i *fleet.Instance) error {
		failing := i.Phase == fleet.Deleting && i.Failed() // its key must not become free
		if i.Phase.Ending() && !failing || i.RemovalAskedAt != nil {
			return errSettled
		}
		i.RemovalAskedAt = &now
		return nil
	})
	if i, ok := o.cfg.Records.Get(id); err == nil && ok && i.Phase == fleet.Deleted && i.Failed() && i.RequestKey != "" {
		return o.attachKey(ctx, i)
	}
	return id, err
}

// AcknowledgeDrained records that a draining instance is empty. Idempotent: the first
// acknowledgement counts.
func (o *Service) AcknowledgeDrained(ctx context.Context, tenant string, id fleet.InstanceID) error {
	now := o.cfg.Now().UTC()
	return o.change(ctx, tenant, id, audit.Done("drain_acknowledged"), func(i *fleet.Instance) error {
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

// Find returns an instance by its record, from memory if it is cached.
func (o *Service) Find(ctx context.Context, tenant string, id fleet.InstanceID) (fleet.Instance, error) {
	_, known := o.cfg.Records.Get(id)
	if !known { // the store is read
		if err := o.cfg.Admission.Reads(tenant, 1); err != nil {
			return fleet.Instance{}, err
		}
	}
	i, ok, err := o.cfg.Records.Find(ctx, tenant, id)
	if ok && !known {
		o.cfg.Touched(i.GroupKey(), id)
	}
	switch {
	case err != nil:
		return fleet.Instance{}, writes.Kind(err)
	case !ok || i.Tenant != tenant:
		return fleet.Instance{}, o.absent(ctx, id)
	}
	return i, nil
}

// absent is the error for an instance that has no record, or is another tenant's. The caller
// takes the instance for gone, so a leader that was deposed without knowing must not return
// it: the next leader may have created that instance.
//
// Unlike for a group, no write is needed to prove the absence: only if-absent creates make a
// record, no caller learns an ID before its create has landed, and no ID that was reported
// absent is created later. A late record of an earlier leader that no key names was never
// acted on, and becomes a tombstone. Of any other such instance, the caller knows the key at
// most, and a removal by key writes the record itself, so that a later create fails
// (DeleteByKey). Everything that an existing record has to remember, such as a requested
// removal, is in each of its later versions, whichever of two writes lands.
func (o *Service) absent(ctx context.Context, id fleet.InstanceID) error {
	if err := o.cfg.Fence.Check(ctx); err != nil {
		return writes.Kind(err)
	}
	return noSuchInstance(id)
}

// removalAsked is the change of an instance whose removal is requested.
func removalAsked() audit.Detail { return audit.Done("removal_asked") }

// refusal is the error of a change that is not made.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// change changes a record of the tenant durably, which the audit tells as what, and enqueues its group.
func (o *Service) change(
	ctx context.Context, tenant string, id fleet.InstanceID, what audit.Detail, change func(*fleet.Instance) error,
) error {
	i, err := o.Find(ctx, tenant, id)
	if err != nil {
		return err
	}
	audit.Wanted(ctx, what)
	err = o.cfg.Loop.Update(ctx, id, func(i *fleet.Instance) error {
		if err := change(i); err != nil {
			return refusal{err}
		}
		return nil
	})
	var refused refusal
	switch {
	case errors.Is(err, errSettled):
		return writes.Kind(o.cfg.Fence.Check(ctx))
	case errors.As(err, &refused):
		return refused.error // without what the ledger prepends
	case errors.Is(err, ledger.ErrNotFound):
		return o.absent(ctx, id)
	}
	if err == nil {
		audit.Changed(ctx, what)
	}
	o.cfg.Touched(i.GroupKey(), id)
	return writes.Kind(err)
}

// noSuchInstance is the error for an instance that does not exist or is another tenant's.
func noSuchInstance(id fleet.InstanceID) error { return rpc.NotFound.Errorf("no such instance %s", id) }
