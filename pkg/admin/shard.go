package admin

import (
	"context"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// ShardStatus says which server leads a shard, and until when.
type ShardStatus struct {
	Shard string
	*nstancev1.GetShardStatusResponse
}

// MarshalJSON implements json.Marshaler: the message's JSON with the shard.
func (s ShardStatus) MarshalJSON() ([]byte, error) {
	return jsonOf(inShard{s.Shard}, s.GetShardStatusResponse)
}

// ShardStatus returns the status of every shard given. On an error it also returns that of the shards that
// answered.
func (c *Client) ShardStatus(ctx context.Context, shards []client.Shard) ([]ShardStatus, error) {
	return each(ctx, c, shards, func(ctx context.Context, shard string, s client.Service) (ShardStatus, error) {
		resp, err := s.GetShardStatus(ctx, &nstancev1.GetShardStatusRequest{})
		return ShardStatus{shard, resp}, err
	})
}
