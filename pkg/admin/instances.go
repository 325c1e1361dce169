package admin

import (
	"context"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Instance is one instance of one shard.
type Instance struct {
	Shard string
	*nstancev1.InstanceStatus
}

// MarshalJSON implements json.Marshaler: the message's JSON with the shard.
func (i Instance) MarshalJSON() ([]byte, error) { return jsonOf(inShard{i.Shard}, i.InstanceStatus) }

// Drains reports whether the instance is draining and that is not acknowledged yet.
func (i Instance) Drains() bool {
	return i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING && i.GetDrain().GetAckedAt() == nil
}

// ListInstances returns the instances of one group, or of all groups if group is empty, ordered
// by shard and age. Tombstones are included only if deleted is set.
func (c *Client) ListInstances(ctx context.Context, shards []client.Shard, group string, deleted bool) ([]Instance, error) {
	return client.Gather(ctx, c.api, shards, func(ctx context.Context, shard string, s client.Service) ([]Instance, error) {
		found, err := client.Instances(ctx, s, group, deleted)
		out := make([]Instance, 0, len(found))
		for _, i := range found {
			out = append(out, Instance{shard, i})
		}
		return out, err
	})
}

// InstanceStatus returns an instance from whichever shard has it. It does not wait for the
// other shards once it is found.
func (c *Client) InstanceStatus(ctx context.Context, shards []client.Shard, id string) (Instance, error) {
	ctx, found := context.WithCancel(ctx)
	defer found()
	all, err := each(ctx, c, shards, func(ctx context.Context, shard string, s client.Service) (Instance, error) {
		resp, err := s.GetInstanceStatus(ctx, &nstancev1.GetInstanceStatusRequest{Id: id})
		if err == nil {
			found()
		}
		return Instance{shard, resp.GetInstance()}, err
	})
	if len(all) > 0 {
		return all[0], nil
	}
	return Instance{}, err
}
