package operators

import (
	"context"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// AcknowledgeDrained ends a drain early: the instance is deleted now. Idempotent.
func (s *Service) AcknowledgeDrained(
	ctx context.Context, req *nstancev1.AcknowledgeDrainedRequest,
) (*nstancev1.AcknowledgeDrainedResponse, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	id, err := fleet.ParseID(req.GetId())
	if err != nil {
		return nil, rpc.InvalidField("id", err.Error())
	}
	onInstance(ctx, tenant, req.GetId())
	err = shard.OnDemand.AcknowledgeDrained(ctx, tenant, id)
	return &nstancev1.AcknowledgeDrainedResponse{}, err
}
