package operators

import (
	"context"

	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// AcknowledgeDrained ends a drain before its time: the instance is deleted now.
// Saying it again does no harm.
func (s *Service) AcknowledgeDrained(
	ctx context.Context, req *nstancev1.AcknowledgeDrainedRequest,
) (*nstancev1.AcknowledgeDrainedResponse, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	id, err := fleet.ParseID(req.GetId())
	if err != nil {
		return nil, invalid("id", err.Error())
	}
	err = shard.OnDemand.AcknowledgeDrained(ctx, tenant, id)
	return &nstancev1.AcknowledgeDrainedResponse{}, err
}
