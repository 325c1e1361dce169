package operators

import (
	"context"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// GetConfigStatus describes the static config that runs. It is the whole
// shard's, so only tenant default may ask.
func (s *Service) GetConfigStatus(ctx context.Context, _ *nstancev1.GetConfigStatusRequest) (*nstancev1.GetConfigStatusResponse, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	if tenant != fleet.DefaultTenant {
		return nil, rpc.Denied.Errorf("the shard's config is for tenant %q only: the client certificate is of tenant %q", fleet.DefaultTenant, tenant)
	}
	c := shard.Config()
	resp := &nstancev1.GetConfigStatusResponse{
		Etag: c.ETag, LastModified: timestamppb.New(c.LastModified), Size: c.Size, RunningApplied: c.RunningApplied,
	}
	for _, v := range c.Violations {
		resp.Violations = append(resp.Violations, &nstancev1.Violation{Field: v.Field, Description: v.Description})
	}
	return resp, nil
}
