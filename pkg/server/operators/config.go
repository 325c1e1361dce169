package operators

import (
	"context"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Static is the static config that runs.
type Static interface {
	Status() ConfigStatus
	// Refresh reads the static config again and goes over to it if it is another
	// one. A config that takes away groups with instances needs all of them in
	// accepted; otherwise the error is an rpc.PreconditionError. When it returns nil
	// that is durable; after an error the config that ran goes on to run.
	Refresh(ctx context.Context, accepted []fleet.GroupKey) (c ConfigStatus, updated bool, err error)
}

// ConfigStatus is which static config runs.
type ConfigStatus struct {
	ETag           string
	LastModified   time.Time
	Size           int64
	RunningApplied bool
	Problems       config.Problems // why config/ can't run, when applied/ does
	// RestartRequired names the fields of the config that this server does without
	// until it is started anew.
	RestartRequired []string
	// Awaits are the removals that config/ waits to be accepted with, sorted by key.
	Awaits []Removal
}

// Removal is a group with instances that a config takes away.
type Removal struct {
	Key       fleet.GroupKey
	Emptied   bool               // it stays, with size 0
	Instances []fleet.InstanceID // that go, sorted
}

// GetConfigStatus describes the static config that runs. It is the whole
// shard's, so only tenant default may ask.
func (s *Service) GetConfigStatus(ctx context.Context, _ *nstancev1.GetConfigStatusRequest) (*nstancev1.GetConfigStatusResponse, error) {
	shard, err := s.openConfig(ctx)
	if err != nil {
		return nil, err
	}
	c := shard.Static.Status()
	resp := &nstancev1.GetConfigStatusResponse{
		Etag: c.ETag, Size: c.Size, RunningApplied: c.RunningApplied, RestartRequired: c.RestartRequired,
		SizeOverrides: sizeOverrides(shard.Groups),
	}
	if !c.LastModified.IsZero() { // else there is none in the bucket
		resp.LastModified = timestamppb.New(c.LastModified)
	}
	for _, r := range c.Awaits {
		resp.AwaitsConfirmation = append(resp.AwaitsConfirmation, r.message())
	}
	for _, p := range c.Problems {
		resp.Violations = append(resp.Violations, &nstancev1.Violation{Field: p.Path, Description: p.Message})
	}
	return resp, nil
}

// RefreshConfig reads the static config again and goes over to it when it is
// another one, and valid: INVALID_ARGUMENT with every violation when it is not,
// UNAVAILABLE when the store is in trouble, FAILED_PRECONDITION while the dynamic
// groups can't be read, and with every removal that was not accepted. Then the config
// that ran goes on to run.
func (s *Service) RefreshConfig(ctx context.Context, req *nstancev1.RefreshConfigRequest) (*nstancev1.RefreshConfigResponse, error) {
	shard, err := s.openConfig(ctx)
	if err != nil {
		return nil, err
	}
	accepted, err := acceptedRemovals(req.GetAcceptRemovals())
	if err != nil {
		return nil, err
	}
	c, updated, err := shard.Static.Refresh(ctx, accepted)
	if err != nil {
		return nil, err
	}
	outcome := nstancev1.RefreshOutcome_REFRESH_OUTCOME_UNCHANGED
	if updated {
		outcome = nstancev1.RefreshOutcome_REFRESH_OUTCOME_UPDATED
	}
	return &nstancev1.RefreshConfigResponse{
		Outcome: outcome, Etag: c.ETag, RestartRequired: c.RestartRequired, SizeOverrides: sizeOverrides(shard.Groups),
	}, nil
}

// sizeOverrides are the static groups, of all tenants, whose size is not the static one.
func sizeOverrides(groups Groups) (all []*nstancev1.SizeOverride) {
	for _, key := range groups.All() {
		if g, defined := groups.Group(key); defined && g.Static && g.Size != g.StaticSize {
			all = append(all, &nstancev1.SizeOverride{
				Tenant: key.Tenant, Group: key.Name, StaticSize: int32(g.StaticSize), Size: int32(g.Size),
			})
		}
	}
	return all
}

// openConfig is open for what concerns the static config, which shows all tenants.
func (s *Service) openConfig(ctx context.Context) (Shard, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return Shard{}, err
	}
	if tenant != fleet.DefaultTenant {
		return Shard{}, rpc.Denied.Errorf("the shard's config is for tenant %q only: the client certificate is of tenant %q",
			fleet.DefaultTenant, tenant)
	}
	return shard, nil
}
