package operators

import (
	"context"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// NewInstance is what an on-demand instance is asked for with.
type NewInstance struct {
	Group     fleet.GroupKey
	Key       string // the idempotency key; empty: none, and every call is another instance
	Overrides fleet.Overrides
}

// OnDemand is the part of a Shard that makes and removes single instances. What it
// did is durable when it returns nil, and everything but a creation without a key
// may be repeated. Its errors are kinds of package rpc; another tenant's instance is
// rpc.NotFound, in the words for one that is not there.
type OnDemand interface {
	// CreateInstance makes the instance, or returns the one that the key names
	// already, as it is now: one in phase deleted when it is gone. A key whose
	// instance failed, which is that no machine was made for it, names a new one.
	CreateInstance(ctx context.Context, n NewInstance) (fleet.Instance, error)
	// Find returns an instance as it is now, whatever made it. That there is none is
	// read by its key, and good to act on.
	Find(ctx context.Context, tenant string, id fleet.InstanceID) (fleet.Instance, error)
	// DeleteInstance asks that an on-demand instance goes, or that a managed one is
	// replaced.
	DeleteInstance(ctx context.Context, tenant string, id fleet.InstanceID) error
	// DeleteByKey does so with the instance that a key names.
	DeleteByKey(ctx context.Context, tenant, key string) error
	// AcknowledgeDrained notes that nothing is left on a draining instance.
	AcknowledgeDrained(ctx context.Context, tenant string, id fleet.InstanceID) error
}

// CreateInstance makes an on-demand instance. It is recorded when this answers; its
// machine comes after.
func (s *Service) CreateInstance(ctx context.Context, req *nstancev1.CreateInstanceRequest) (*nstancev1.CreateInstanceResponse, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	n, err := newInstance(tenant, req)
	if err != nil {
		return nil, err
	}
	i, err := shard.OnDemand.CreateInstance(ctx, n)
	if err != nil {
		return nil, err
	}
	return &nstancev1.CreateInstanceResponse{Instance: statusOf(shard, i)}, nil
}

func newInstance(tenant string, req *nstancev1.CreateInstanceRequest) (NewInstance, error) {
	n := NewInstance{
		Group: fleet.GroupKey{Tenant: tenant, Name: req.GetGroup()}, Key: req.GetIdempotencyKey(),
		Overrides: fleet.Overrides{InstanceType: req.GetInstanceType()},
	}
	var wrong []rpc.Violation
	if err := fleet.CheckName(n.Group.Name); err != nil {
		wrong = append(wrong, rpc.Violation{Field: "group", Description: err.Error()})
	}
	if n.Key != "" {
		if err := fleet.CheckRequestKey(n.Key); err != nil {
			wrong = append(wrong, rpc.Violation{Field: "idempotency_key", Description: err.Error()})
		}
	}
	if len(wrong) > 0 {
		return NewInstance{}, &rpc.ViolationsError{Message: "invalid request", Violations: wrong}
	}
	if vars := req.GetVars().AsMap(); len(vars) > 0 {
		n.Overrides.Vars = vars
	}
	return n, nil
}

// DeleteInstance removes an on-demand instance, with its drain, and has a managed
// one replaced: first the new one runs, then this one drains. To make a group
// smaller is UpsertGroup's.
func (s *Service) DeleteInstance(ctx context.Context, req *nstancev1.DeleteInstanceRequest) (*nstancev1.DeleteInstanceResponse, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	switch target := req.GetTarget().(type) {
	case *nstancev1.DeleteInstanceRequest_Id:
		id, bad := fleet.ParseID(target.Id)
		if bad != nil {
			return nil, invalid("id", bad.Error())
		}
		err = shard.OnDemand.DeleteInstance(ctx, tenant, id)
	case *nstancev1.DeleteInstanceRequest_IdempotencyKey:
		if bad := fleet.CheckRequestKey(target.IdempotencyKey); bad != nil {
			return nil, invalid("idempotency_key", bad.Error())
		}
		err = shard.OnDemand.DeleteByKey(ctx, tenant, target.IdempotencyKey)
	default:
		err = invalid("id", "required, unless an idempotency_key is given")
	}
	return &nstancev1.DeleteInstanceResponse{}, err
}
