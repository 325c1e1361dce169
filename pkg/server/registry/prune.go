package registry

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// Prune deletes the records and tombstones of operators of all tenants that were removed before a
// time, and returns how many objects it deleted. The time must be longer ago than a nonce and an
// operator's certificate are valid, so that nothing is left which the tombstone would refuse. What
// can't be read stays, and so does what the store refuses to delete, as it may be told to protect
// tombstones. Leaders of several shards may call it concurrently.
func (r *Registry) Prune(ctx context.Context, before time.Time) (deleted int, err error) {
	listed, err := object.All(ctx, r.cfg.Operators, fleet.OperatorPrefix)
	if err != nil {
		return 0, err
	}
	for _, o := range listed {
		if !o.ModTime.Before(before) {
			continue
		}
		removed, err := r.removedBefore(ctx, o.Key, before)
		if err == nil && removed {
			err = r.cfg.Writes.Do(ctx, func(ctx context.Context) error {
				return r.cfg.Fence.Act(ctx, func(ctx context.Context) error { return r.cfg.Store.Delete(ctx, o.Key) })
			})
		}
		switch {
		case errors.Is(err, object.ErrRefused) && !errors.Is(err, object.ErrUnknown):
		case err != nil:
			return deleted, err
		case removed:
			deleted++
		}
	}
	return deleted, nil
}

// removedBefore reports whether an object says that its operator was removed before a time.
func (r *Registry) removedBefore(ctx context.Context, key string, before time.Time) (bool, error) {
	record := key
	if name, tombstone := strings.CutSuffix(key, fleet.OperatorTombstoneSuffix); tombstone {
		record = name + ".json"
	}
	tenant, id, err := fleet.ParseOperatorKey(record)
	if err != nil {
		return false, nil //nolint:nilerr // not an operator's
	}
	found, err := r.cfg.Operators.Get(ctx, key)
	switch {
	case errors.Is(err, object.ErrNotFound):
		return false, nil // another shard's leader was faster
	case err != nil:
		return false, err
	}
	o, _, err := r.decode(key, tenant, id, found.Body)
	return err == nil && o.RemovedAt != nil && o.RemovedAt.Before(before), nil
}
