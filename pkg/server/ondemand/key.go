package ondemand

import (
	"context"
	"errors"
	"reflect"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/writes"
)

// This file resolves idempotency keys.

// found is what an idempotency key resolves to. The zero value means nothing yet.
type found struct {
	instance fleet.Instance   // the instance that it names
	id       fleet.InstanceID // of the instance that it names, if its record was never written
	failed   fleet.InstanceID // of the failed instance that it names, if the key may be reclaimed
}

// found resolves the key of a new instance.
func (o *Service) found(ctx context.Context, n operators.NewInstance) (found, error) {
	if n.Key == "" {
		return found{}, nil
	}
	if err := o.cfg.Admission.Reads(n.Group.Tenant, 1); err != nil {
		return found{}, err
	}
	r, err := o.cfg.Records.Request(ctx, n.Group.Tenant, n.Key)
	if errors.Is(err, ledger.ErrNotFound) {
		return found{}, nil
	}
	if err != nil {
		return found{}, err
	}
	r, i, err := o.named(ctx, r)
	switch {
	case err != nil:
		return found{}, err
	case free(r, i):
		return found{failed: r.ID}, nil
	case i.ID == "":
		return found{id: r.ID}, differs(n, r)
	default:
		return found{instance: i}, differs(n, r)
	}
}

// named returns the instance that a request names, from its record or as deleted. It is the zero
// Instance if its record was never written, as after a crash in between. The returned request is
// the one this holds for: the key may name another instance since r was read.
func (o *Service) named(ctx context.Context, r ledger.Request) (ledger.Request, fleet.Instance, error) {
	if i, ok := o.cfg.Records.Get(r.ID); ok {
		return r, i, o.cfg.Fence.Check(ctx)
	}
	// When a record is removed, its request is marked: read it again.
	now, err := o.cfg.Records.Request(ctx, r.Tenant, r.Key)
	switch {
	case err == nil && now.ID != r.ID:
		return o.named(ctx, now)
	case err != nil || !now.Gone:
		return now, fleet.Instance{}, err
	}
	return now, fleet.Instance{
		ID: now.ID, Tenant: now.Tenant, Group: now.Group, OnDemand: true, Overrides: now.Overrides, RequestKey: now.Key,
		Namespace: now.Namespace,
		Phase:     fleet.Deleted, Failure: now.Failure, CreatedAt: now.CreatedAt,
	}, o.cfg.Fence.Check(ctx)
}

// claim makes the instance's key name it, in place of a failed instance if one is given, and
// returns the ID that the key names now.
func (o *Service) claim(ctx context.Context, failed fleet.InstanceID, i fleet.Instance) (fleet.InstanceID, error) {
	r := ledger.Request{
		Tenant: i.Tenant, Key: i.RequestKey, ID: i.ID, Group: i.Group, Overrides: i.Overrides, Namespace: i.Namespace, CreatedAt: i.CreatedAt,
	}
	r, err := writes.During(ctx, o.cfg.Records.Writes, func(ctx context.Context) (ledger.Request, error) {
		if failed != "" {
			return o.cfg.Records.Writer.Reclaim(ctx, failed, r)
		}
		return o.cfg.Records.Writer.Claim(ctx, r)
	})
	return r.ID, err
}

// free reports whether a key may be reclaimed for another instance: the one that it names
// failed, and its removal was not requested.
func free(r ledger.Request, i fleet.Instance) bool {
	return i.Phase == fleet.Deleted && i.Failed() && !r.Removed
}

// attachKey keeps a key on a failed instance whose removal was requested, so that a repeated
// creation finds the instance gone. It returns the ID that the key names now, which differs if
// the creation was repeated before.
func (o *Service) attachKey(ctx context.Context, i fleet.Instance) (fleet.InstanceID, error) {
	r, err := writes.During(ctx, o.cfg.Records.Writes, func(ctx context.Context) (ledger.Request, error) {
		return o.cfg.Records.Writer.AttachKey(ctx, i.Tenant, i.RequestKey, i.ID)
	})
	if errors.Is(err, ledger.ErrNotFound) || errors.Is(err, ledger.ErrRequest) {
		return i.ID, nil // request removed or damaged externally: the key names nothing
	}
	return r.ID, err
}

// DeleteByKey requests the removal of the instance that a key names. If only the request
// exists, the record is written with the removal in it: a repeated creation then finds the
// instance gone, and a late write of the record fails.
func (o *Service) DeleteByKey(ctx context.Context, tenant, key string) error {
	if err := o.cfg.Admission.Reads(tenant, 1); err != nil {
		return err
	}
	r, err := o.cfg.Records.Request(ctx, tenant, key)
	if errors.Is(err, ledger.ErrNotFound) {
		// A claim of this key by an abandoned call may still land. It makes no instance: the
		// record is written only after the claim, by the same call, and that has ended. Only a
		// repeated creation makes one.
		if err := o.cfg.Fence.Check(ctx); err != nil {
			return writes.Kind(err)
		}
		return rpc.NotFound.Errorf("no instance was created with the idempotency key %s", key)
	}
	if err != nil {
		return createError(err)
	}
	r, i, err := o.named(ctx, r)
	if err == nil && i.ID == "" {
		i, err = o.recordLeaving(ctx, r)
	}
	names := i.ID
	switch {
	case err != nil:
	case i.Phase == fleet.Deleted && i.Failed():
		names, err = o.attachKey(ctx, i)
	case i.Phase == fleet.Deleted || i.RemovalAskedAt != nil:
	default:
		names, err = o.remove(ctx, tenant, i.ID)
	}
	if err == nil && names != i.ID {
		return o.DeleteByKey(ctx, tenant, key) // the creation was just repeated
	}
	return createError(err)
}

func (o *Service) recordLeaving(ctx context.Context, r ledger.Request) (fleet.Instance, error) {
	i := fleet.Instance{
		ID: r.ID, Tenant: r.Tenant, Group: r.Group, OnDemand: true, Overrides: r.Overrides, RequestKey: r.Key, Phase: fleet.Pending,
		Namespace: r.Namespace,
	}
	g, _ := o.cfg.Group(i.GroupKey())
	i, err := o.built(i, g, o.cfg.Now())
	if err != nil {
		return fleet.Instance{}, err
	}
	i.RemovalAskedAt = &i.CreatedAt
	audit.Wanted(ctx, removalAsked())
	if i, err = o.record(ctx, i); err == nil && i.RemovalAskedAt != nil {
		audit.Changed(ctx, removalAsked())
	}
	return i, err
}

// differs returns an error if a call asks for something else than the key was first used for.
func differs(n operators.NewInstance, r ledger.Request) error {
	var was fleet.Overrides
	if r.Overrides != nil {
		was = *r.Overrides
	}
	switch {
	case r.Group != n.Group.Name:
		return rpc.Precondition.Errorf("group: the idempotency key %s names an instance of group %s, not %s", n.Key, r.Group, n.Group.Name)
	case r.Namespace != n.Namespace:
		return rpc.Precondition.Errorf("namespace: the idempotency key %s names an instance for a pod of %q, not %q",
			n.Key, r.Namespace, n.Namespace)
	case was.InstanceType != n.Overrides.InstanceType:
		return rpc.Precondition.Errorf("instance_type: the idempotency key %s names an instance with the override %q, not %q",
			n.Key, was.InstanceType, n.Overrides.InstanceType)
	case !reflect.DeepEqual(was.Vars, n.Overrides.Vars):
		return rpc.Precondition.Errorf("vars: the idempotency key %s names an instance with other vars", n.Key)
	default:
		return nil
	}
}
