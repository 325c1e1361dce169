package operators

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Leadership is the present term of this server.
type Leadership struct {
	Server, Version string
	Epoch           uint64
	Since           time.Time
	LeaseRenewed    time.Time
	LeaseEnds       time.Time // unless it is renewed again
	Standbys        int       // servers that follow this one
}

// GetShardStatus says which server leads the shard.
func (s *Service) GetShardStatus(ctx context.Context, _ *nstancev1.GetShardStatusRequest) (*nstancev1.GetShardStatusResponse, error) {
	if _, _, err := s.open(ctx); err != nil {
		return nil, err
	}
	is, err := s.cfg.Leadership()
	if err != nil {
		return nil, err
	}
	return &nstancev1.GetShardStatusResponse{
		Leader: is.Server, Epoch: is.Epoch, Version: is.Version, Standbys: int32(is.Standbys), LeadingSince: timestamppb.New(is.Since),
		LeaseRenewedAt: timestamppb.New(is.LeaseRenewed), LeaseEndsAt: timestamppb.New(is.LeaseEnds),
	}, nil
}
