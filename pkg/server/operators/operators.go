package operators

import (
	"context"
	"fmt"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// MaxOperatorPage is how many records a page of operators is built from.
const MaxOperatorPage = 100

// Registry holds the cluster's operators. Its errors are kinds of package rpc.
type Registry interface {
	// Operators reads up to limit records of a tenant's operators, oldest first, starting
	// after the given ID, or from the oldest if it is empty. next is the ID to continue after,
	// empty at the end. A damaged record has only its ID and tenant.
	Operators(ctx context.Context, tenant string, after fleet.InstanceID, limit int) (found []fleet.Operator, next fleet.InstanceID, err error)
	// RemoveOperator returns nil once the removal is durable and in effect on this server. The
	// error is NotFound if the tenant has no such operator.
	RemoveOperator(ctx context.Context, tenant string, id, by fleet.InstanceID) (fleet.Operator, error)
	// OperatorHere reports whether an operator has called recently or has a watch open.
	OperatorHere(tenant string, id fleet.InstanceID) bool
}

// ListOperators lists the operators of the caller's tenant. They belong to the cluster, so
// every shard's leader lists the same.
func (s *Service) ListOperators(ctx context.Context, req *nstancev1.ListOperatorsRequest) (*nstancev1.ListOperatorsResponse, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	limit, after, err := pageOf(req.GetPageSize(), req.GetPageToken(), MaxOperatorPage, operatorID)
	if err != nil {
		return nil, err
	}
	found, next, err := shard.Registry.Operators(ctx, tenant, after, limit)
	if err != nil {
		return nil, err
	}
	resp := &nstancev1.ListOperatorsResponse{NextPageToken: string(next)}
	for _, o := range found {
		if o.RemovedAt == nil || req.GetIncludeRemoved() {
			resp.Operators = append(resp.Operators, operatorStatus(shard, o))
		}
	}
	return resp, nil
}

// RemoveOperator revokes an operator of the caller's tenant. The caller may be that operator:
// it gets the response, and is refused afterwards. The tenant's quota does not apply, because
// the operator to be removed may have used it up.
func (s *Service) RemoveOperator(ctx context.Context, req *nstancev1.RemoveOperatorRequest) (*nstancev1.RemoveOperatorResponse, error) {
	shard, caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	id, err := operatorID("id", req.GetId())
	if err != nil {
		return nil, err
	}
	audit.On(ctx, "operator "+caller.Tenant+"/"+string(id))
	removed, err := shard.Registry.RemoveOperator(ctx, caller.Tenant, id, fleet.InstanceID(caller.ID))
	if err != nil {
		return nil, err
	}
	return &nstancev1.RemoveOperatorResponse{Operator: operatorStatus(shard, removed)}, nil
}

func operatorID(field, text string) (fleet.InstanceID, error) {
	id, err := fleet.ParseID(text)
	if err != nil || id.Kind() != fleet.OperatorKind {
		return "", rpc.InvalidField(field, fmt.Sprintf("%.80q is not an operator id: want %s and 26 characters", text, fleet.OperatorKind))
	}
	return id, nil
}

func operatorStatus(shard Shard, o fleet.Operator) *nstancev1.OperatorStatus {
	st := &nstancev1.OperatorStatus{
		Id: string(o.ID), Tenant: o.Tenant, RemovedBy: string(o.RemovedBy), Connected: shard.Registry.OperatorHere(o.Tenant, o.ID),
	}
	if !o.RegisteredAt.IsZero() {
		st.RegisteredAt = timestamppb.New(o.RegisteredAt)
	}
	if o.RemovedAt != nil {
		st.RemovedAt = timestamppb.New(*o.RemovedAt)
	}
	return st
}
