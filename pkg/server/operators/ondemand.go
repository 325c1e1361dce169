package operators

import (
	"context"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// NewInstance is a request for an on-demand instance.
type NewInstance struct {
	Group     fleet.GroupKey
	Key       string // the idempotency key; empty: every call creates another instance
	Namespace string // of the pod that it is for; empty: not for a pod
	Overrides fleet.Overrides
}

// OnDemand creates and removes single instances. Changes are durable when a method returns
// nil, and all calls but creates without a key are idempotent. Errors are kinds of package
// rpc; another tenant's instance is rpc.NotFound, with the same text as one that does not
// exist.
type OnDemand interface {
	// CreateInstance creates the instance, or returns the current state of the one that the
	// key names, in phase deleted if it is gone. If the key's instance failed, meaning that no
	// machine was created for it, a new one is created.
	CreateInstance(ctx context.Context, n NewInstance) (fleet.Instance, error)
	// Find returns the current state of any instance, managed or on-demand. A missing one is
	// looked up in the store by key, so rpc.NotFound is reliable.
	Find(ctx context.Context, tenant string, id fleet.InstanceID) (fleet.Instance, error)
	// DeleteInstance requests the removal of an on-demand instance, or the replacement of a
	// managed one.
	DeleteInstance(ctx context.Context, tenant string, id fleet.InstanceID) error
	// DeleteByKey is DeleteInstance for the instance that a key names.
	DeleteByKey(ctx context.Context, tenant, key string) error
	// AcknowledgeDrained records that a draining instance is empty.
	AcknowledgeDrained(ctx context.Context, tenant string, id fleet.InstanceID) error
}

// CreateInstance creates an on-demand instance. Its record exists when this returns; its
// machine is created later.
func (s *Service) CreateInstance(ctx context.Context, req *nstancev1.CreateInstanceRequest) (*nstancev1.CreateInstanceResponse, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	n, err := newInstance(tenant, req)
	if err != nil {
		return nil, err
	}
	onGroup(ctx, n.Group)
	audit.Wanted(ctx, n.details()...)
	i, err := shard.OnDemand.CreateInstance(ctx, n)
	if err != nil {
		return nil, err
	}
	onInstance(ctx, tenant, string(i.ID))
	audit.Changed(ctx, n.details()...)
	return &nstancev1.CreateInstanceResponse{Instance: statusOf(shard, i)}, nil
}

func newInstance(tenant string, req *nstancev1.CreateInstanceRequest) (NewInstance, error) {
	n := NewInstance{
		Group: fleet.GroupKey{Tenant: tenant, Name: req.GetGroup()}, Key: req.GetIdempotencyKey(),
		Overrides: fleet.Overrides{InstanceType: req.GetInstanceType()}, Namespace: req.GetNamespace(),
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
	if n.Namespace != "" {
		if err := fleet.CheckNamespace(n.Namespace); err != nil {
			wrong = append(wrong, rpc.Violation{Field: "namespace", Description: err.Error()})
		}
	}
	if len(wrong) > 0 {
		return NewInstance{}, rpc.InvalidRequest(wrong...)
	}
	if vars := req.GetVars().AsMap(); len(vars) > 0 {
		n.Overrides.Vars = vars
	}
	return n, nil
}

// DeleteInstance drains and removes an on-demand instance. A managed one is replaced: once the
// new instance runs, the old one drains. To shrink a group, use UpsertGroup.
func (s *Service) DeleteInstance(ctx context.Context, req *nstancev1.DeleteInstanceRequest) (*nstancev1.DeleteInstanceResponse, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	switch target := req.GetTarget().(type) {
	case *nstancev1.DeleteInstanceRequest_Id:
		id, bad := fleet.ParseID(target.Id)
		if bad != nil {
			return nil, rpc.InvalidField("id", bad.Error())
		}
		onInstance(ctx, tenant, target.Id)
		err = shard.OnDemand.DeleteInstance(ctx, tenant, id)
	case *nstancev1.DeleteInstanceRequest_IdempotencyKey:
		if bad := fleet.CheckRequestKey(target.IdempotencyKey); bad != nil {
			return nil, rpc.InvalidField("idempotency_key", bad.Error())
		}
		audit.On(ctx, "idempotency_key "+tenant+"/"+target.IdempotencyKey)
		err = shard.OnDemand.DeleteByKey(ctx, tenant, target.IdempotencyKey)
	default:
		err = rpc.InvalidField("id", "required unless idempotency_key is set")
	}
	return &nstancev1.DeleteInstanceResponse{}, err
}
