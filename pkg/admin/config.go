package admin

import (
	"context"
	"errors"
	"fmt"
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
	RunningApplied bool       `json:"running_applied"` // config/ is invalid; the last accepted one runs
	// RestartRequired names the fields that the leader does without until it is
	// started anew.
	RestartRequired []string    `json:"restart_required,omitempty"`
	Violations      []Violation `json:"violations,omitempty"`
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
	Outcome string `json:"outcome"` // updated | unchanged | invalid
	ETag    string `json:"etag,omitempty"`
	// RestartRequired names the changed fields that take effect after a restart.
	RestartRequired []string    `json:"restart_required,omitempty"`
	Violations      []Violation `json:"violations,omitempty"` // of an invalid one; the config that runs stays
}

// The outcomes of a refresh.
const (
	RefreshUpdated   = "updated"
	RefreshUnchanged = "unchanged"
	RefreshInvalid   = "invalid"
)

// RefreshConfig has every shard given read its config again. An invalid config
// is an outcome, and an error beside it: what was accepted before goes on to run.
func (c *Client) RefreshConfig(ctx context.Context, shards []client.Shard) ([]Refresh, error) {
	all, err := client.Gather(ctx, c.api, shards, func(ctx context.Context, shard string, s client.Service) ([]Refresh, error) {
		resp, err := s.RefreshConfig(ctx, &nstancev1.RefreshConfigRequest{})
		switch violations := rpc.Violations(err); {
		case len(violations) > 0:
			return []Refresh{{Shard: shard, Outcome: RefreshInvalid, Violations: fromRPC(violations)}}, nil
		case err != nil:
			return nil, err
		}
		r := Refresh{Shard: shard, Outcome: RefreshUpdated, ETag: resp.GetEtag(), RestartRequired: resp.GetRestartRequired()}
		if resp.GetOutcome() == nstancev1.RefreshOutcome_REFRESH_OUTCOME_UNCHANGED {
			r.Outcome = RefreshUnchanged
		}
		return []Refresh{r}, nil
	})
	for _, r := range all {
		if r.Outcome == RefreshInvalid {
			err = errors.Join(err, fmt.Errorf("shard %s: %w", r.Shard, ErrInvalidConfig))
		}
	}
	return all, err
}

func fromRPC(violations []rpc.Violation) []Violation {
	out := make([]Violation, 0, len(violations))
	for _, v := range violations {
		out = append(out, Violation{Field: v.Field, Description: v.Description})
	}
	return out
}
