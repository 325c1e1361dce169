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
	shard, err := s.openConfig(ctx)
	if err != nil {
		return nil, err
	}
	c := shard.Config()
	resp := &nstancev1.GetConfigStatusResponse{
		Etag: c.ETag, Size: c.Size, RunningApplied: c.RunningApplied, RestartRequired: c.RestartRequired,
	}
	if !c.LastModified.IsZero() { // else there is none in the bucket
		resp.LastModified = timestamppb.New(c.LastModified)
	}
	for _, v := range c.Violations {
		resp.Violations = append(resp.Violations, &nstancev1.Violation{Field: v.Field, Description: v.Description})
	}
	return resp, nil
}

// RefreshConfig reads the static config again and goes over to it when it is
// another one, and valid: INVALID_ARGUMENT with every violation when it is not,
// UNAVAILABLE when the store is in trouble, FAILED_PRECONDITION while the dynamic
// groups can't be read. Then the config that ran goes on to run.
func (s *Service) RefreshConfig(ctx context.Context, _ *nstancev1.RefreshConfigRequest) (*nstancev1.RefreshConfigResponse, error) {
	shard, err := s.openConfig(ctx)
	if err != nil {
		return nil, err
	}
	r, err := shard.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	outcome := nstancev1.RefreshOutcome_REFRESH_OUTCOME_UNCHANGED
	if r.Updated {
		outcome = nstancev1.RefreshOutcome_REFRESH_OUTCOME_UPDATED
	}
	return &nstancev1.RefreshConfigResponse{Outcome: outcome, Etag: r.ETag, RestartRequired: r.RestartRequired}, nil
}

// openConfig is open for what concerns the static config, which shows all tenants.
func (s *Service) openConfig(ctx context.Context) (Shard, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	if tenant != fleet.DefaultTenant {
		return nil, rpc.Denied.Errorf("the shard's config is for tenant %q only: the client certificate is of tenant %q", fleet.DefaultTenant, tenant)
	}
	return shard, nil
}
