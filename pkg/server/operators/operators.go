package operators

import (
	"context"
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// MaxOperatorPage is how many records one page of operators is made from.
const MaxOperatorPage = 100

// Registry holds the cluster's operators. Its errors are kinds of package rpc.
type Registry interface {
	// Operators reads up to limit records of a tenant's operators, by age, from the
	// one after the given id on; empty: from the oldest. next is the id to go on
	// after, empty when that was all. A record that is damaged has its id and its
	// tenant alone.
	Operators(ctx context.Context, tenant string, after fleet.InstanceID, limit int) (found []fleet.Operator, next fleet.InstanceID, err error)
	// RemoveOperator is durable when it returns nil, and has been carried out here.
	// NotFound when the tenant has no such operator.
	RemoveOperator(ctx context.Context, tenant string, id, by fleet.InstanceID) (fleet.Operator, error)
	// OperatorHere reports whether an operator has called or watched of late.
	OperatorHere(tenant string, id fleet.InstanceID) bool
}

// ListOperators lists the operators of the caller's tenant. They are the
// cluster's, so every shard's leader lists the same.
func (s *Service) ListOperators(ctx context.Context, req *nstancev1.ListOperatorsRequest) (*nstancev1.ListOperatorsResponse, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	p, err := pageOf(req.GetPageSize(), req.GetPageToken(), MaxOperatorPage, operatorID)
	if err != nil {
		return nil, err
	}
	found, next, err := shard.Registry.Operators(ctx, tenant, p.after, p.limit)
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

// RemoveOperator ends the power of an operator of the caller's tenant. The caller
// may be that operator: it gets its answer, and nothing after it.
func (s *Service) RemoveOperator(ctx context.Context, req *nstancev1.RemoveOperatorRequest) (*nstancev1.RemoveOperatorResponse, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	id, err := operatorID("id", req.GetId())
	if err != nil {
		return nil, err
	}
	caller, _ := rpc.CallerFrom(ctx) // open has seen it
	removed, err := shard.Registry.RemoveOperator(ctx, tenant, id, fleet.InstanceID(caller.ID))
	if err != nil {
		return nil, err
	}
	return &nstancev1.RemoveOperatorResponse{Operator: operatorStatus(shard, removed)}, nil
}

func operatorID(field, text string) (fleet.InstanceID, error) {
	id, err := fleet.ParseID(text)
	if err != nil || id.Kind() != fleet.OperatorKind {
		return "", invalid(field, fmt.Sprintf("%.80q is not the id of an operator: want %s and 26 characters", text, fleet.OperatorKind))
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
