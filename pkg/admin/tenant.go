package admin

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// CheckTenant returns an error if no shard declares a tenant in its active or pending config:
// an operator of that tenant would be served nowhere. It returns nil if the tenant is declared,
// and also if that is unknown because there is no config or one can't be read.
func (c *Cluster) CheckTenant(ctx context.Context, tenant string) error {
	if tenant == fleet.DefaultTenant {
		return nil
	}
	var shards []string
	for _, prefix := range []string{"config/", "applied/"} {
		infos, err := object.All(ctx, c.store, prefix)
		if err != nil {
			return fmt.Errorf("list the shards' configs: %w", err)
		}
		for _, info := range infos {
			shard, known, err := c.shardConfig(ctx, info.Key)
			switch {
			case err != nil:
				return err
			case !known || shard.HasTenant(tenant):
				return nil
			}
			shards = append(shards, strings.TrimSuffix(path.Base(info.Key), ".jsonc"))
		}
	}
	if len(shards) == 0 {
		return nil
	}
	slices.Sort(shards)
	return fmt.Errorf("tenant: %q is not declared in the config of any shard (%s): declare it under tenants there first, or use tenant %s",
		tenant, strings.Join(slices.Compact(shards), ", "), fleet.DefaultTenant)
}

// shardConfig reads a shard's config; known is false if it can't be read.
func (c *Cluster) shardConfig(ctx context.Context, key string) (shard *config.Shard, known bool, err error) {
	o, err := c.store.Get(ctx, key)
	switch {
	case errors.Is(err, object.ErrNotFound):
		return nil, false, nil // deleted since it was listed
	case err != nil:
		return nil, false, fmt.Errorf("read %s: %w", key, err)
	}
	body := o.Body
	if strings.HasPrefix(key, "applied/") {
		if _, body, err = config.CutHeader(body); err != nil {
			return nil, false, nil //nolint:nilerr // an invalid config says nothing about tenants
		}
	}
	shard, err = config.ParseAccepted(body)
	return shard, err == nil, nil
}
