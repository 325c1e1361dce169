package httpapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Service is the part of admin.Client that the API serves; the comments are there.
type Service interface {
	ShardStatus(ctx context.Context, shards []client.Shard) ([]admin.ShardStatus, error)
	ConfigStatus(ctx context.Context, shards []client.Shard) ([]admin.ConfigStatus, error)
	PreviewConfig(ctx context.Context, shards []client.Shard, text []byte) ([]admin.Preview, error)
	RefreshConfig(
		ctx context.Context, shards []client.Shard, accept []string, confirm func([]admin.Refresh) error,
	) ([]admin.Refresh, error)
	ListGroups(ctx context.Context, shards []client.Shard, with client.Parts) ([]admin.Group, error)
	GroupStatus(ctx context.Context, shards []client.Shard, key string) ([]admin.Group, error)
	UpsertGroup(ctx context.Context, shards []client.Shard, req *nstancev1.UpsertGroupRequest) ([]admin.Group, error)
	AbortRollout(ctx context.Context, shards []client.Shard, key string, etag *string) ([]admin.Group, error)
	RetryRollout(ctx context.Context, shards []client.Shard, key string, etag *string) ([]admin.Group, error)
	DeleteGroup(ctx context.Context, shards []client.Shard, key string, force bool) ([]string, error)
	Counted(ctx context.Context, shards []client.Shard, group string, onDemand bool) (map[string][]string, error)
	ListInstances(ctx context.Context, shards []client.Shard, group string, deleted bool) ([]admin.Instance, error)
	InstanceStatus(ctx context.Context, shards []client.Shard, id string) (admin.Instance, error)
	CreateInstance(ctx context.Context, shard client.Shard, req *nstancev1.CreateInstanceRequest) (admin.Instance, error)
	DeleteInstance(ctx context.Context, shards []client.Shard, id string) (string, error)
	AcknowledgeDrained(ctx context.Context, shards []client.Shard, id string) (string, error)
	Feed
}

var _ Service = (*admin.Client)(nil)

// Target selects shards, as the flags of nstance-admin do.
type Target struct {
	Shard     string `query:"shard" doc:"Only this shard"`
	AllShards bool   `query:"all_shards" doc:"All shards: the default of requests that only read. Excludes shard"`
}

// read returns the shards to read from: all unless one is named.
func (t Target) read(all []client.Shard) ([]client.Shard, error) {
	if t.Shard != "" && t.AllShards {
		return nil, invalidField("shard", "shard and all_shards are mutually exclusive")
	}
	picked, err := client.Select(all, t.Shard)
	if err != nil {
		p := problem(http.StatusBadRequest, err.Error())
		p.Fields = invalidField("shard", err.Error()).Fields
		return nil, p
	}
	return picked, nil
}

// write returns the shards to change: the one named, the only one there is, or all if that is
// said.
func (t Target) write(all []client.Shard) ([]client.Shard, error) {
	picked, err := t.read(all)
	if err != nil {
		return nil, err
	}
	if len(picked) > 1 && !t.AllShards {
		return nil, invalidField("shard", fmt.Sprintf("there are %d shards: add shard=NAME or all_shards=true", len(picked)))
	}
	return picked, nil
}

// one returns the single shard to change; why: what belongs to one shard only.
func (t Target) one(all []client.Shard, field, why string) (client.Shard, error) {
	picked, err := t.write(all)
	if err != nil {
		return client.Shard{}, err
	}
	if len(picked) > 1 {
		return client.Shard{}, invalidField(field, why+": add shard=NAME")
	}
	return picked[0], nil
}
