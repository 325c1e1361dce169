package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// PutConfig stores a shard's static config, which the caller has validated, replacing the
// current one. It reports whether the stored config changed: identical text is not written
// again, as that would change its etag. It needs no server: the config is the first object of a
// bucket. It fails with object.ErrConflict if the config changes concurrently.
func PutConfig(ctx context.Context, c StorageConfig, getenv func(string) string, shard string, text []byte) (changed bool, err error) {
	if err := fleet.CheckName(shard); err != nil {
		return false, fmt.Errorf("shard: %w", err)
	}
	store, err := c.open(getenv)
	if err != nil {
		return false, err
	}
	key := "config/" + shard + ".jsonc"
	pre := object.IfAbsent()
	switch o, err := store.Get(ctx, key); {
	case errors.Is(err, object.ErrNotFound):
	case err != nil:
		return false, fmt.Errorf("read %s: %w", key, err)
	case bytes.Equal(o.Body, text):
		return false, nil
	default:
		pre = object.IfMatch(o.ETag)
	}
	if _, err := object.PutConfirmed(ctx, store, key, text, pre); err != nil {
		return false, fmt.Errorf("put %s: %w", key, err)
	}
	return true, nil
}
