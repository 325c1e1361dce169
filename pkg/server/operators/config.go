package operators

import (
	"context"
	"time"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/preview"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Static is the running static config.
type Static interface {
	Status() ConfigStatus
	// DeletedRecords returns what the running config's retention keeps.
	DeletedRecords() preview.DeletedRecords
	// Refresh reads the static config and switches to it if it has changed. A config that
	// removes groups with instances needs all of them in accepted; otherwise the error is an
	// rpc.PreconditionError. A nil error means that the switch is durable; after an error the
	// previous config stays active.
	Refresh(ctx context.Context, accepted []fleet.GroupKey) (Refreshed, error)
	// Preview returns what a switch to a text, or to the static config if it is nil, would do.
	// It changes nothing. The errors are those of Refresh, except for removals.
	Preview(ctx context.Context, text []byte) (ConfigPreview, error)
}

// ConfigStatus describes the running static config.
type ConfigStatus struct {
	ETag           string
	LastModified   time.Time
	Size           int64
	RunningApplied bool
	Problems       config.Problems // why config/ is invalid, while applied/ runs
	// RestartRequired names the config fields that take effect only after a restart of this
	// server.
	RestartRequired []string
	// Awaits lists the removals in config/ that must be accepted, sorted by key.
	Awaits []Removal
	// Shrunk lists the groups that the running config made smaller by half or more when this
	// server switched to it, sorted by key.
	Shrunk []Shrunk
}

// Removal is a group with instances that a config removes.
type Removal struct {
	Key       fleet.GroupKey
	Emptied   bool               // the group stays, with size 0
	SizeUnset bool               // the group stays, with the default size, as nothing sets one
	Keeps     int                // how many of Instances stay
	Instances []fleet.InstanceID // to be removed but for Keeps, sorted
}

// Shrunk is a group that the running config made smaller by half or more.
type Shrunk struct {
	Key        fleet.GroupKey
	SizeBefore int
	Size       int
}

// GetConfigStatus describes the running static config. It concerns the whole shard, so only
// tenant default may call it.
func (s *Service) GetConfigStatus(ctx context.Context, _ *nstancev1.GetConfigStatusRequest) (*nstancev1.GetConfigStatusResponse, error) {
	shard, err := s.openConfig(ctx)
	if err != nil {
		return nil, err
	}
	c := shard.Static.Status()
	resp := &nstancev1.GetConfigStatusResponse{
		Etag: c.ETag, Size: c.Size, RunningApplied: c.RunningApplied, RestartRequired: c.RestartRequired,
		SizeOverrides: sizeOverrides(shard.Groups), DeletedRecords: deletedMessage(shard.Static.DeletedRecords()),
	}
	if !c.LastModified.IsZero() { // else the bucket has none
		resp.LastModified = timestamppb.New(c.LastModified)
	}
	for _, r := range c.Awaits {
		resp.AwaitsConfirmation = append(resp.AwaitsConfirmation, r.message())
	}
	for _, s := range c.Shrunk {
		resp.Shrunk = append(resp.Shrunk, &nstancev1.GroupShrunk{
			Tenant: s.Key.Tenant, Group: s.Key.Name, SizeBefore: int32(s.SizeBefore), Size: int32(s.Size),
		})
	}
	for _, p := range c.Problems {
		resp.Violations = append(resp.Violations, &nstancev1.Violation{Field: p.Path, Description: p.Message})
	}
	return resp, nil
}

// RefreshConfig reads the static config and switches to it if it has changed. It returns
// INVALID_ARGUMENT with every violation if the config is invalid, UNAVAILABLE if the store
// fails, and FAILED_PRECONDITION while the dynamic groups can't be read, or with every removal
// that was not accepted. After an error the previous config stays active.
func (s *Service) RefreshConfig(ctx context.Context, req *nstancev1.RefreshConfigRequest) (*nstancev1.RefreshConfigResponse, error) {
	shard, err := s.openConfig(ctx)
	if err != nil {
		return nil, err
	}
	accepted, err := acceptedRemovals(req.GetAcceptRemovals())
	if err != nil {
		return nil, err
	}
	audit.On(ctx, "config")
	before := shard.Static.Status()
	var removals []audit.Detail
	for _, key := range accepted {
		removals = append(removals, audit.Detail{Name: "accept_removal", To: key.String()})
	}
	audit.Wanted(ctx, removals...)
	var c Refreshed
	err = shard.edit(ctx, fleet.GroupKey{}, func() (err error) {
		c, err = shard.Static.Refresh(ctx, accepted)
		return err
	})
	if err != nil {
		return nil, err
	}
	audit.Changed(ctx, append(removals, etagBecomes(before, c.ETag))...)
	outcome := nstancev1.RefreshOutcome_REFRESH_OUTCOME_UNCHANGED
	var preview *nstancev1.ConfigPreview
	if c.Updated {
		outcome, preview = nstancev1.RefreshOutcome_REFRESH_OUTCOME_UPDATED, c.Preview.message()
	}
	return &nstancev1.RefreshConfigResponse{
		Outcome: outcome, Etag: c.ETag, RestartRequired: c.RestartRequired, SizeOverrides: sizeOverrides(shard.Groups), Preview: preview,
	}, nil
}

// sizeOverrides returns the static groups of all tenants whose size is overridden.
func sizeOverrides(groups Groups) (all []*nstancev1.SizeOverride) {
	for _, key := range groups.All() {
		if g, defined := groups.Group(key); defined && g.Static && g.Size != g.StaticSize {
			all = append(all, overrideMessage(preview.Override{Key: key, StaticSize: g.StaticSize, Size: g.Size, Manager: g.Manager}))
		}
	}
	return all
}

// openConfig is open for calls on the static config, which shows all tenants.
func (s *Service) openConfig(ctx context.Context) (Shard, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return Shard{}, err
	}
	if tenant != fleet.DefaultTenant {
		return Shard{}, rpc.Denied.Errorf("only tenant %q may access the shard's config: the client certificate is of tenant %q",
			fleet.DefaultTenant, tenant)
	}
	return shard, nil
}
