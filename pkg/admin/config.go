package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// ConfigStatus is the state of one shard's static config.
type ConfigStatus struct {
	Shard string
	*nstancev1.GetConfigStatusResponse
}

// MarshalJSON implements json.Marshaler: the message's JSON with the shard.
func (s ConfigStatus) MarshalJSON() ([]byte, error) {
	return jsonOf(inShard{s.Shard}, s.GetConfigStatusResponse)
}

// ConfigStatus returns the config status of every shard given.
func (c *Client) ConfigStatus(ctx context.Context, shards []client.Shard) ([]ConfigStatus, error) {
	return each(ctx, c, shards, func(ctx context.Context, shard string, s client.Service) (ConfigStatus, error) {
		resp, err := s.GetConfigStatus(ctx, &nstancev1.GetConfigStatusRequest{})
		return ConfigStatus{shard, resp}, err
	})
}

// Refresh is the result of one shard's config refresh.
type Refresh struct {
	Shard   string `json:"shard"`
	Outcome string `json:"outcome"` // updated | unchanged | invalid | awaits-confirmation
	ETag    string `json:"etag,omitempty"`
	// RestartRequired names the changed fields that take effect after a restart.
	RestartRequired []string        `json:"restart_required,omitempty"`
	Violations      []rpc.Violation `json:"violations,omitempty"` // if invalid
	Removals        []Removal       `json:"removals,omitempty"`   // if it awaits confirmation
	// SizeOverrides lists the active config's size overrides, if updated or unchanged.
	SizeOverrides SizeOverrides `json:"size_overrides,omitempty"`
	Preview       *Effect       `json:"preview,omitempty"` // what was done, if updated
}

// SizeOverrides lists groups of a static config whose size is overridden.
type SizeOverrides []*nstancev1.SizeOverride

// MarshalJSON implements json.Marshaler: a list of the messages' JSON.
func (all SizeOverrides) MarshalJSON() ([]byte, error) {
	out := make([]json.RawMessage, len(all))
	for i, o := range all {
		var err error
		if out[i], err = jsonOf(o); err != nil {
			return nil, err
		}
	}
	return json.Marshal(out)
}

// Removal is an unconfirmed removal by a config.
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

// RefreshConfig makes every shard given reload its config, with the removals of the groups in
// accept (as tenant/group) confirmed. If configs remove other groups that have instances,
// confirm is called with those shards' results; if it returns nil, they are refreshed again
// with those removals confirmed. If confirm is nil or fails, their active configs stay. A
// config that is invalid or awaits confirmation is returned both as a result and as an error.
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
		declined := confirm(awaiting)
		err = errors.Join(err, declined)
		for n, r := range all {
			if declined != nil || r.Outcome != RefreshAwaits {
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

// refreshAgain refreshes one shard again, with the removals it named confirmed.
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

// refresh refreshes every shard given once.
func (c *Client) refresh(ctx context.Context, shards []client.Shard, accept []string) ([]Refresh, error) {
	return each(ctx, c, shards, func(ctx context.Context, shard string, s client.Service) (Refresh, error) {
		resp, err := s.RefreshConfig(ctx, &nstancev1.RefreshConfigRequest{AcceptRemovals: accept})
		violations, removals := rpc.Violations(err), removalsIn(err)
		switch {
		case len(removals) > 0:
			return Refresh{Shard: shard, Outcome: RefreshAwaits, Removals: removals}, nil
		case len(violations) > 0:
			return Refresh{Shard: shard, Outcome: RefreshInvalid, Violations: violations}, nil
		}
		r := Refresh{
			Shard: shard, Outcome: RefreshUpdated, ETag: resp.GetEtag(), RestartRequired: resp.GetRestartRequired(),
			SizeOverrides: resp.GetSizeOverrides(),
		}
		if resp.GetOutcome() == nstancev1.RefreshOutcome_REFRESH_OUTCOME_UNCHANGED {
			r.Outcome = RefreshUnchanged
		}
		if p := resp.GetPreview(); p != nil {
			r.Preview = &Effect{p}
		}
		return r, err
	})
}

// removalsIn returns the removals that an error names.
func removalsIn(err error) (all []Removal) {
	for _, f := range rpc.Failures(err) {
		switch f.Type {
		case rpc.GroupRemoved, rpc.GroupEmptied, rpc.GroupSizeUnset:
			all = append(all, Removal{Group: f.Subject, Description: f.Description})
		}
	}
	return all
}
