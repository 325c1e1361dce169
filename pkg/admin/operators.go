package admin

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Operator is one operator of the cluster, as people and scripts see it.
type Operator struct {
	ID           string     `json:"id"`
	Tenant       string     `json:"tenant"`
	RegisteredAt *time.Time `json:"registered_at,omitempty"`
	ConnectedTo  []string   `json:"connected_to"` // of the shards that were asked
	RemovedAt    *time.Time `json:"removed_at,omitempty"`
	RemovedBy    string     `json:"removed_by,omitempty"`
}

// ListOperators returns the operators of the caller's tenant, by age, and with
// removed those that were removed too. The list is the cluster's, so one shard
// knows them all; each knows who is connected to it. What some shards answered is
// returned beside the error of the others.
func (c *Client) ListOperators(ctx context.Context, shards []client.Shard, removed bool) ([]Operator, error) {
	all, err := client.Gather(ctx, c.api, shards, func(ctx context.Context, shard string, s client.Service) ([]Operator, error) {
		return client.Pages(func(token string) (found []Operator, next string, err error) {
			resp, err := s.ListOperators(ctx, &nstancev1.ListOperatorsRequest{IncludeRemoved: removed, PageToken: token})
			for _, o := range resp.GetOperators() {
				found = append(found, operator(shard, o))
			}
			return found, resp.GetNextPageToken(), err
		})
	})
	byID := map[string]Operator{}
	for _, o := range all {
		if same, ok := byID[o.ID]; ok {
			o.ConnectedTo = append(same.ConnectedTo, o.ConnectedTo...)
		}
		byID[o.ID] = o
	}
	byAge := func(a, b Operator) int { return strings.Compare(a.ID, b.ID) } // all are of one kind
	return append([]Operator{}, slices.SortedFunc(maps.Values(byID), byAge)...), err
}

func operator(shard string, o *nstancev1.OperatorStatus) Operator {
	out := Operator{
		ID: o.GetId(), Tenant: o.GetTenant(), RegisteredAt: timeOf(o.GetRegisteredAt()), ConnectedTo: []string{},
		RemovedAt: timeOf(o.GetRemovedAt()), RemovedBy: o.GetRemovedBy(),
	}
	if o.GetConnected() {
		out.ConnectedTo = append(out.ConnectedTo, shard)
	}
	return out
}

// RemoveOperator ends an operator's power for good, and returns the shards that
// refuse it from now on. One of them suffices to remove it: those that were not
// reached, and are named in the error, notice it within about a minute.
func (c *Client) RemoveOperator(ctx context.Context, shards []client.Shard, id string) ([]string, error) {
	itself := id == c.cfg.Identity.ID()
	return client.Gather(ctx, c.api, shards, func(ctx context.Context, shard string, s client.Service) ([]string, error) {
		_, err := s.RemoveOperator(ctx, &nstancev1.RemoveOperatorRequest{Id: id})
		if itself && rpc.Revoked(err) { // another shard was first
			err = nil
		}
		if err != nil {
			return nil, err
		}
		return []string{shard}, nil
	})
}
