package admin

import (
	"context"
	"time"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// ConfigStatus is which static config one shard runs.
type ConfigStatus struct {
	Shard          string      `json:"shard"`
	ETag           string      `json:"etag"`
	LastModified   *time.Time  `json:"last_modified,omitempty"`
	Size           int64       `json:"size"`
	RunningApplied bool        `json:"running_applied"` // config/ is invalid; the last accepted one runs
	Violations     []Violation `json:"violations,omitempty"`
}

// Violation is one thing that is wrong with a config.
type Violation struct {
	Field       string `json:"field"`
	Description string `json:"description"`
}

// ConfigStatus asks every shard given.
func (c *Client) ConfigStatus(ctx context.Context, shards []Shard) ([]ConfigStatus, error) {
	return gather(ctx, c, shards, func(ctx context.Context, shard string, s nstancev1.OperatorServiceClient) ([]ConfigStatus, error) {
		resp, err := s.GetConfigStatus(ctx, &nstancev1.GetConfigStatusRequest{})
		if err != nil {
			return nil, err
		}
		st := ConfigStatus{
			Shard: shard, ETag: resp.GetEtag(), LastModified: timeOf(resp.GetLastModified()),
			Size: resp.GetSize(), RunningApplied: resp.GetRunningApplied(),
		}
		for _, v := range resp.GetViolations() {
			st.Violations = append(st.Violations, Violation{Field: v.GetField(), Description: v.GetDescription()})
		}
		return []ConfigStatus{st}, nil
	})
}
