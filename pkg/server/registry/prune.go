package registry

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/server/writes"
)

// Prune deletes the records and tombstones of operators of all tenants that were removed before a
// time, which must be longer ago than a nonce and an operator's certificate are valid, so that nothing
// is left which the tombstone would refuse. An operator goes if all that is stored of it says so: what
// is damaged or was put back stays, with what is beside it. So does what the store refuses, as it may
// be told to protect tombstones. Leaders of several shards may call it concurrently.
func (r *Registry) Prune(ctx context.Context, before func() time.Time) (writes.Swept, error) {
	listed, err := object.All(ctx, r.cfg.Operators, fleet.OperatorPrefix)
	if err != nil {
		return writes.Swept{}, err
	}
	page := func(yield func([]operatorKey, error) bool) { yield(oldOperators(listed, before()), nil) }
	return writes.Sweep(ctx, page, func(ctx context.Context, k operatorKey) (bool, error) { return r.prune(ctx, k, before()) })
}

// operatorKey identifies an operator.
type operatorKey struct {
	tenant string
	id     fleet.InstanceID
}

// oldOperators returns the operators of objects that were written before a time. An operator's objects are
// listed one after the other.
func oldOperators(listed []object.Info, before time.Time) (old []operatorKey) {
	for _, o := range listed {
		record := o.Key
		if name, tombstone := strings.CutSuffix(o.Key, fleet.OperatorTombstoneSuffix); tombstone {
			record = name + ".json"
		}
		if tenant, id, err := fleet.ParseOperatorKey(record); err == nil && o.ModTime.Before(before) {
			old = append(old, operatorKey{tenant, id})
		}
	}
	return slices.Compact(old)
}

// prune deletes an operator that was removed before a time: the tombstone last, which refuses what the
// record would allow.
func (r *Registry) prune(ctx context.Context, k operatorKey, before time.Time) (removed bool, err error) {
	var keys []string
	for _, key := range []string{fleet.OperatorKey(k.tenant, k.id), fleet.OperatorTombstoneKey(k.tenant, k.id)} {
		found, err := r.cfg.Operators.Get(ctx, key)
		if errors.Is(err, object.ErrNotFound) {
			continue
		}
		if err != nil {
			return false, err
		}
		o, _, err := r.decode(key, k.tenant, k.id, found.Body)
		if err != nil || o.RemovedAt == nil || !o.RemovedAt.Before(before) || !found.ModTime.Before(before) {
			return false, nil //nolint:nilerr // a damaged one stays
		}
		keys = append(keys, key)
	}
	for _, key := range keys {
		err := r.cfg.Writes.Do(ctx, func(ctx context.Context) error {
			return r.cfg.Fence.Act(ctx, func(ctx context.Context) error { return r.cfg.Store.Delete(ctx, key) })
		})
		if err != nil {
			return false, err
		}
	}
	return len(keys) > 0, nil
}
