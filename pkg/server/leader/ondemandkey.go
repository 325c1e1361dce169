package leader

import (
	"context"
	"errors"
	"reflect"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/operators"
)

// This file is what an idempotency key stands for.

// found is what an idempotency key stands for. The zero value: nothing yet.
type found struct {
	instance fleet.Instance   // that it names
	id       fleet.InstanceID // of the instance that it names, whose record was never written
	failed   fleet.InstanceID // that it names, and need not name any longer
}

// found looks up what the key of a new instance stands for.
func (o *onDemand) found(ctx context.Context, n operators.NewInstance) (found, error) {
	if n.Key == "" {
		return found{}, nil
	}
	r, err := o.records.Request(ctx, n.Group.Tenant, n.Key)
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

// named is the instance that a request names: as its record says, or as gone. It is
// the zero Instance when its record was never written, as after a crash in between.
// The request is the one that this holds for: it may have come to name another
// instance since r was read.
func (o *onDemand) named(ctx context.Context, r ledger.Request) (ledger.Request, fleet.Instance, error) {
	if i, ok := o.records.Get(r.ID); ok {
		return r, i, o.cfg.Fence.Check(ctx)
	}
	// A record that left since r was read has its request say so: read it again.
	now, err := o.records.Request(ctx, r.Tenant, r.Key)
	switch {
	case err == nil && now.ID != r.ID:
		return o.named(ctx, now)
	case err != nil || !now.Gone:
		return now, fleet.Instance{}, err
	}
	return now, fleet.Instance{
		ID: now.ID, Tenant: now.Tenant, Group: now.Group, OnDemand: true, Overrides: now.Overrides, RequestKey: now.Key,
		Phase: fleet.Deleted, Failure: now.Failure, CreatedAt: now.CreatedAt,
	}, o.cfg.Fence.Check(ctx)
}

// claim has the instance's key name it, in place of the one that failed, if there is
// one, and returns the id that it names now.
func (o *onDemand) claim(ctx context.Context, failed fleet.InstanceID, i fleet.Instance) (fleet.InstanceID, error) {
	r := ledger.Request{Tenant: i.Tenant, Key: i.RequestKey, ID: i.ID, Group: i.Group, Overrides: i.Overrides, CreatedAt: i.CreatedAt}
	r, err := during(ctx, o.records.writes, func(ctx context.Context) (ledger.Request, error) {
		if failed != "" {
			return o.records.writer.Reclaim(ctx, failed, r)
		}
		return o.records.writer.Claim(ctx, r)
	})
	return r.ID, err
}

// free reports whether a key may name another instance than the one that it names:
// that came to nothing, and nobody asked for its removal.
func free(r ledger.Request, i fleet.Instance) bool {
	return i.Phase == fleet.Deleted && i.Failed() && !r.Removed
}

// keep has a key go on to name an instance that came to nothing and whose removal
// was asked for, so that whoever repeats the creation finds it gone. It returns the
// id that the key names now: another one when the creation was repeated before.
func (o *onDemand) keep(ctx context.Context, i fleet.Instance) (fleet.InstanceID, error) {
	r, err := during(ctx, o.records.writes, func(ctx context.Context) (ledger.Request, error) {
		return o.records.writer.Keep(ctx, i.Tenant, i.RequestKey, i.ID)
	})
	if errors.Is(err, ledger.ErrNotFound) || errors.Is(err, ledger.ErrRequest) {
		return i.ID, nil // removed or broken by hand: it names nothing any more
	}
	return r.ID, err
}

// DeleteByKey asks that the instance goes which a key names. Where its creation
// came no further than the request, its record is written as one of an instance that
// is to go: so whoever repeats the creation finds it gone, and a write of the record
// that is still under way somewhere comes too late.
func (o *onDemand) DeleteByKey(ctx context.Context, tenant, key string) error {
	r, err := o.records.Request(ctx, tenant, key)
	if errors.Is(err, ledger.ErrNotFound) {
		// A claim of this key that was given up may still land. It makes no instance:
		// the record is written after it, by a call that still runs, and no call outlives
		// the deadline of its caller. Only to repeat the creation makes one.
		if err := o.cfg.Fence.Check(ctx); err != nil {
			return kind(err)
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
		names, err = o.keep(ctx, i)
	case i.Phase == fleet.Deleted || i.RemovalAskedAt != nil:
	default:
		names, err = o.remove(ctx, tenant, i.ID)
	}
	if err == nil && names != i.ID {
		return o.DeleteByKey(ctx, tenant, key) // the creation was repeated just before
	}
	return createError(err)
}

func (o *onDemand) recordLeaving(ctx context.Context, r ledger.Request) (fleet.Instance, error) {
	i := fleet.Instance{
		ID: r.ID, Tenant: r.Tenant, Group: r.Group, OnDemand: true, Overrides: r.Overrides, RequestKey: r.Key, Phase: fleet.Pending,
	}
	g, _ := o.groups.Group(i.GroupKey())
	i, err := o.built(i, g, o.cfg.Now())
	if err != nil {
		return fleet.Instance{}, err
	}
	i.RemovalAskedAt = &i.CreatedAt
	return o.record(ctx, i)
}

// differs says what is asked for otherwise than the key was first used for.
func differs(n operators.NewInstance, r ledger.Request) error {
	var was fleet.Overrides
	if r.Overrides != nil {
		was = *r.Overrides
	}
	switch {
	case r.Group != n.Group.Name:
		return rpc.Precondition.Errorf("group: the idempotency key %s names an instance of group %s, not %s", n.Key, r.Group, n.Group.Name)
	case was.InstanceType != n.Overrides.InstanceType:
		return rpc.Precondition.Errorf("instance_type: the idempotency key %s names an instance with the override %q, not %q",
			n.Key, was.InstanceType, n.Overrides.InstanceType)
	case !reflect.DeepEqual(was.Vars, n.Overrides.Vars):
		return rpc.Precondition.Errorf("vars: the idempotency key %s names an instance with other vars", n.Key)
	default:
		return nil
	}
}
