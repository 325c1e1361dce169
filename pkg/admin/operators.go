package admin

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Operator is one operator of the cluster. It counts as connected if it is to any of the shards
// that were called.
type Operator struct {
	*nstancev1.OperatorStatus
	ConnectedTo []string
}

// MarshalJSON implements json.Marshaler: the message's JSON with the shards.
func (o Operator) MarshalJSON() ([]byte, error) {
	return jsonOf(o.OperatorStatus, struct {
		ConnectedTo []string `json:"connected_to"`
	}{append([]string{}, o.ConnectedTo...)})
}

// ListOperators returns the operators of the caller's tenant by age, including removed ones if
// removed is set. The list is cluster-wide, but each shard knows only its own connections. On
// an error it also returns what the reachable shards answered.
func (c *Client) ListOperators(ctx context.Context, shards []client.Shard, removed bool) ([]Operator, error) {
	all, err := client.Gather(ctx, c.api, shards, func(ctx context.Context, shard string, s client.Service) ([]Operator, error) {
		return client.Pages(func(token string) (found []Operator, next string, err error) {
			resp, err := s.ListOperators(ctx, &nstancev1.ListOperatorsRequest{IncludeRemoved: removed, PageToken: token})
			for _, o := range resp.GetOperators() {
				one := Operator{OperatorStatus: o}
				if o.GetConnected() {
					one.ConnectedTo = []string{shard}
				}
				found = append(found, one)
			}
			return found, resp.GetNextPageToken(), err
		})
	})
	byID := map[string]Operator{}
	for _, o := range all {
		o.ConnectedTo = append(byID[o.GetId()].ConnectedTo, o.ConnectedTo...)
		o.Connected = len(o.ConnectedTo) > 0
		byID[o.GetId()] = o
	}
	byAge := func(a, b Operator) int { return strings.Compare(a.GetId(), b.GetId()) } // IDs of one kind sort by age
	return append([]Operator{}, slices.SortedFunc(maps.Values(byID), byAge)...), err
}

// RemoveOperator revokes an operator permanently and returns the shards that refuse it from now
// on. One reachable shard suffices: the unreachable ones, named in the error, refuse it within
// about a minute.
func (c *Client) RemoveOperator(ctx context.Context, shards []client.Shard, id string) ([]string, error) {
	itself := id == c.cfg.Identity.ID()
	return each(ctx, c, shards, func(ctx context.Context, shard string, s client.Service) (string, error) {
		_, err := s.RemoveOperator(ctx, &nstancev1.RemoveOperatorRequest{Id: id})
		if itself && rpc.Revoked(err) { // another shard removed it first
			err = nil
		}
		return shard, err
	})
}
