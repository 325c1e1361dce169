package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// ConfigStatus is which static config one shard runs.
type ConfigStatus struct {
	Shard          string     `json:"shard"`
	ETag           string     `json:"etag"`
	LastModified   *time.Time `json:"last_modified,omitempty"`
	Size           int64      `json:"size"`
	RunningApplied bool       `json:"running_applied"` // config/ is invalid or waits; the last accepted one runs
	// RestartRequired names the fields that the leader does without until it is
	// started anew.
	RestartRequired []string    `json:"restart_required,omitempty"`
	Violations      []Violation `json:"violations,omitempty"`
	// AwaitsConfirmation are the groups with instances that config/ takes away, when
	// that is why it does not run.
	AwaitsConfirmation []GroupRemoval `json:"awaits_confirmation,omitempty"`
	SizeOverrides      []SizeOverride `json:"size_overrides,omitempty"`
}

// SizeOverride is a group of the static config that runs whose size was set otherwise.
type SizeOverride struct {
	Tenant     string `json:"tenant"`
	Group      string `json:"group"`
	StaticSize int32  `json:"static_size"`
	Size       int32  `json:"size"` // that counts
}

func sizeOverrides(all []*nstancev1.SizeOverride) (out []SizeOverride) {
	for _, o := range all {
		out = append(out, SizeOverride{Tenant: o.GetTenant(), Group: o.GetGroup(), StaticSize: o.GetStaticSize(), Size: o.GetSize()})
	}
	return out
}

// GroupRemoval is a group with instances that a config takes away.
type GroupRemoval struct {
	Tenant      string   `json:"tenant"`
	Group       string   `json:"group"`
	Emptied     bool     `json:"emptied"` // it stays, with size 0
	Instances   int32    `json:"instances"`
	InstanceIDs []string `json:"instance_ids"` // the first of them
}

// Violation is one thing that is wrong with a config.
type Violation struct {
	Field       string `json:"field"`
	Description string `json:"description"`
}

// ConfigStatus asks every shard given.
func (c *Client) ConfigStatus(ctx context.Context, shards []client.Shard) ([]ConfigStatus, error) {
	return client.Gather(ctx, c.api, shards, func(ctx context.Context, shard string, s client.Service) ([]ConfigStatus, error) {
		resp, err := s.GetConfigStatus(ctx, &nstancev1.GetConfigStatusRequest{})
		if err != nil {
			return nil, err
		}
		st := ConfigStatus{
			Shard: shard, ETag: resp.GetEtag(), LastModified: timeOf(resp.GetLastModified()),
			Size: resp.GetSize(), RunningApplied: resp.GetRunningApplied(), RestartRequired: resp.GetRestartRequired(),
			SizeOverrides: sizeOverrides(resp.GetSizeOverrides()),
		}
		for _, r := range resp.GetAwaitsConfirmation() {
			st.AwaitsConfirmation = append(st.AwaitsConfirmation, GroupRemoval{
				Tenant: r.GetTenant(), Group: r.GetGroup(), Emptied: r.GetEmptied(), Instances: r.GetInstances(), InstanceIDs: r.GetInstanceIds(),
			})
		}
		for _, v := range resp.GetViolations() {
			st.Violations = append(st.Violations, Violation{Field: v.GetField(), Description: v.GetDescription()})
		}
		return []ConfigStatus{st}, nil
	})
}

// Refresh is what one shard did with the config that is in the bucket now.
type Refresh struct {
	Shard   string `json:"shard"`
	Outcome string `json:"outcome"` // updated | unchanged | invalid | awaits-confirmation
	ETag    string `json:"etag,omitempty"`
	// RestartRequired names the changed fields that take effect after a restart.
	RestartRequired []string    `json:"restart_required,omitempty"`
	Violations      []Violation `json:"violations,omitempty"` // of an invalid one; the config that runs stays
	Removals        []Removal   `json:"removals,omitempty"`   // of one that awaits confirmation; the config that runs stays
	// SizeOverrides are those of the config that runs now, when it is updated or unchanged.
	SizeOverrides []SizeOverride `json:"size_overrides,omitempty"`
}

// Removal is what a config takes away, and was not told that it may.
type Removal struct {
	Group       string `json:"group"` // tenant/group
	Description string `json:"description"`
}

// The outcomes of a refresh.
const (
	RefreshUpdated   = "updated"
	RefreshUnchanged = "unchanged"
	RefreshInvalid   = "invalid"
	RefreshAwaits    = "awaits-confirmation"
)

// RefreshConfig has every shard given read its config again, and accepts the removals
// of groups, as tenant/group, in accept. When configs take away other groups that have
// instances, confirm is asked about those shards; when it returns nil they are asked
// again, with what they named accepted. Without it, or when it fails, their configs that
// run stay. A config that is not valid, or awaits confirmation, is an outcome, and an
// error beside it.
func (c *Client) RefreshConfig(
	ctx context.Context, shards []client.Shard, accept []string, confirm func([]Refresh) error,
) ([]Refresh, error) {
	all, err := c.refresh(ctx, shards, accept)
	var awaiting []Refresh
	for _, r := range all {
		if r.Outcome == RefreshAwaits {
			awaiting = append(awaiting, r)
		}
	}
	if len(awaiting) > 0 && confirm != nil {
		if declined := confirm(awaiting); declined != nil {
			err, awaiting = errors.Join(err, declined), nil
		}
		for n, r := range all {
			if len(awaiting) == 0 || r.Outcome != RefreshAwaits {
				continue
			}
			again, failed := c.refreshAgain(ctx, shards, r, accept)
			if err = errors.Join(err, failed); failed == nil {
				all[n] = again
			}
		}
	}
	for _, r := range all {
		switch r.Outcome {
		case RefreshInvalid:
			err = errors.Join(err, fmt.Errorf("shard %s: %w", r.Shard, ErrInvalidConfig))
		case RefreshAwaits:
			err = errors.Join(err, fmt.Errorf("shard %s: %w", r.Shard, ErrAwaitsConfirmation))
		}
	}
	return all, err
}

// refreshAgain asks one shard again, with what it named accepted.
func (c *Client) refreshAgain(ctx context.Context, shards []client.Shard, r Refresh, accept []string) (Refresh, error) {
	shard, err := client.Select(shards, r.Shard)
	if err != nil {
		return r, err
	}
	accept = slices.Clone(accept)
	for _, removal := range r.Removals {
		accept = append(accept, removal.Group)
	}
	again, err := c.refresh(ctx, shard, accept)
	if len(again) == 0 {
		return r, err
	}
	return again[0], err
}

// refresh asks every shard given once.
func (c *Client) refresh(ctx context.Context, shards []client.Shard, accept []string) ([]Refresh, error) {
	return client.Gather(ctx, c.api, shards, func(ctx context.Context, shard string, s client.Service) ([]Refresh, error) {
		resp, err := s.RefreshConfig(ctx, &nstancev1.RefreshConfigRequest{AcceptRemovals: accept})
		violations, removals := rpc.Violations(err), removalsIn(err)
		switch {
		case len(removals) > 0:
			return []Refresh{{Shard: shard, Outcome: RefreshAwaits, Removals: removals}}, nil
		case len(violations) > 0:
			return []Refresh{{Shard: shard, Outcome: RefreshInvalid, Violations: fromRPC(violations)}}, nil
		case err != nil:
			return nil, err
		}
		r := Refresh{
			Shard: shard, Outcome: RefreshUpdated, ETag: resp.GetEtag(), RestartRequired: resp.GetRestartRequired(),
			SizeOverrides: sizeOverrides(resp.GetSizeOverrides()),
		}
		if resp.GetOutcome() == nstancev1.RefreshOutcome_REFRESH_OUTCOME_UNCHANGED {
			r.Outcome = RefreshUnchanged
		}
		return []Refresh{r}, nil
	})
}

// removalsIn are those that a refusal is about.
func removalsIn(err error) (all []Removal) {
	for _, f := range rpc.Failures(err) {
		if f.Type == rpc.GroupRemoved || f.Type == rpc.GroupEmptied {
			all = append(all, Removal{Group: f.Subject, Description: f.Description})
		}
	}
	return all
}

func fromRPC(violations []rpc.Violation) []Violation {
	out := make([]Violation, 0, len(violations))
	for _, v := range violations {
		out = append(out, Violation{Field: v.Field, Description: v.Description})
	}
	return out
}
