package admin

import (
	"context"
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// Tenants returns the tenants that the configs in the storage declare, sorted. Configs that can't be
// parsed are left out. It needs no access to the cluster's secrets.
func Tenants(ctx context.Context, c StorageConfig, getenv func(string) string) ([]string, error) {
	store, err := c.openExisting(getenv)
	if err != nil {
		return nil, err
	}
	cluster := &Cluster{store: store}
	names := []string{fleet.DefaultTenant}
	for _, prefix := range []string{"config/", "applied/"} {
		infos, err := object.All(ctx, store, prefix)
		if err != nil {
			return nil, err
		}
		for _, info := range infos {
			shard, known, err := cluster.shardConfig(ctx, info.Key)
			if err != nil {
				return nil, err
			}
			if known {
				names = slices.AppendSeq(names, maps.Keys(shard.Tenants))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
