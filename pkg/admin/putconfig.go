package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// PutConfig puts a shard's static config, which the caller has checked, into the storage, in
// place of the one that is there. It reports whether that changed anything: the same text is
// not written again, or it would have another etag. No server is needed: the config is the
// first thing in a bucket. One that somebody changes at the same time is left alone, with an
// error of object.ErrConflict.
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
	if _, err := object.Settle(ctx, store, key, text, pre); err != nil {
		return false, fmt.Errorf("put %s: %w", key, err)
	}
	return true, nil
}
