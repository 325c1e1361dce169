// Package registry keeps the records of the cluster's operators: it registers them, lists them, and
// removes them for good.
package registry

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/record"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/roster"
	"github.com/nstance/nstance/pkg/server/writes"
)

// Config configures a registry. All fields are required.
type Config struct {
	// Operators reads records without counting as progress of the shard's own work; Store
	// writes them.
	Operators, Store object.Store
	Fence            Fence
	Seal             record.Seal
	Writer           string // identifies this start of this process
	Admission        Admission
	Writes           *writes.Writes
	Roster           *roster.Roster
	Now              func() time.Time
	Logger           *slog.Logger
}

// Fence guards the writes of a term: *election.Term.
type Fence interface {
	Epoch() uint64
	Check(ctx context.Context) error
	Act(ctx context.Context, act func(context.Context) error) error
}

// Admission decides which calls are accepted. Its errors are kinds of package rpc.
type Admission interface {
	// Serves returns an error if the shard does not serve the tenant.
	Serves(tenant string) error
	// Reads admits n object reads for a tenant.
	Reads(tenant string, n int) error
	// Removal admits the removal of an operator by another.
	Removal(tenant string, by fleet.InstanceID) error
}

// Registry keeps the records of the cluster's operators. Safe for concurrent use.
type Registry struct {
	cfg   Config
	lists operatorLists
	// listings holds one token while records of operators are listed or read for a caller.
	listings chan struct{}
}

// New returns a registry.
func New(cfg Config) *Registry {
	r := &Registry{cfg: cfg, listings: make(chan struct{}, 1)}
	r.lists.list, r.lists.now = r.list, cfg.Now
	return r
}

var _ operators.Registry = (*Registry)(nil)

// BindOperator creates the operator's record by one if-absent write, which spends its nonce
// and registers it at once. A repeated registration finds that record, whichever shard's
// server wrote it. A removed operator is returned as removed, even if its record is gone or
// was replaced by an older one.
func (r *Registry) BindOperator(ctx context.Context, o fleet.Operator) (fleet.Operator, error) {
	if err := r.cfg.Admission.Serves(o.Tenant); err != nil {
		return fleet.Operator{}, err
	}
	switch gone, err := r.readTombstone(ctx, o.Tenant, o.ID); {
	case err == nil:
		return gone, writes.Kind(r.cfg.Fence.Check(ctx))
	case !errors.Is(err, object.ErrNotFound):
		return fleet.Operator{}, writes.Kind(err)
	}
	body, err := r.encode(o.Key(), o.Written(r.cfg.Fence.Epoch(), r.cfg.Writer), record.Unknown{})
	if err != nil {
		return fleet.Operator{}, err
	}
	err = r.cfg.Writes.Do(ctx, func(ctx context.Context) error {
		return r.cfg.Fence.Act(ctx, func(ctx context.Context) error {
			_, err := object.PutConfirmed(ctx, r.cfg.Store, o.Key(), body, object.IfAbsent())
			return err
		})
	})
	if !errors.Is(err, object.ErrConflict) {
		return o, writes.Kind(err)
	}
	found, err := r.cfg.Store.Get(ctx, o.Key())
	if err != nil {
		return fleet.Operator{}, writes.Kind(err)
	}
	there, _, err := r.decode(o.Key(), o.Tenant, o.ID, found.Body)
	if err != nil {
		return fleet.Operator{}, err
	}
	return there, writes.Kind(r.cfg.Fence.Check(ctx))
}

// operatorReads is how many records of operators are read at a time.
const operatorReads = 8

// Operators implements operators.Registry.
func (r *Registry) Operators(
	ctx context.Context, tenant string, after fleet.InstanceID, limit int,
) (found []fleet.Operator, next fleet.InstanceID, err error) {
	list, leave, err := r.lists.of(ctx, tenant)
	if err != nil {
		return nil, "", writes.Kind(err)
	}
	defer leave()
	for _, i := range list.infos {
		_, id, err := fleet.ParseOperatorKey(i.Key)
		if err != nil || (after != "" && i.Key <= fleet.OperatorKey(tenant, after)) {
			continue // not an operator's record, or on an earlier page
		}
		if len(found) == limit {
			next = found[limit-1].ID
			break
		}
		found = append(found, fleet.Operator{ID: id, Tenant: tenant})
	}
	found, err = r.readOperators(ctx, list, found)
	return found, next, writes.Kind(err)
}

// list lists the records of a tenant's operators.
func (r *Registry) list(ctx context.Context, tenant string) (infos []object.Info, err error) {
	if err := r.cfg.Admission.Reads(tenant, 1); err != nil {
		return nil, err
	}
	err = r.alone(ctx, func() error {
		infos, err = object.All(ctx, r.cfg.Operators, fleet.OperatorPrefix+tenant+".")
		return err
	})
	return infos, err
}

// alone serializes operations with many reads, to leave the store to the shard's own reads and
// writes.
func (r *Registry) alone(ctx context.Context, do func() error) error {
	select {
	case r.listings <- struct{}{}:
		defer func() { <-r.listings }()
		return do()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// readOperators reads the records with the given IDs, unless they are cached. A record that was
// deleted externally is left out.
func (r *Registry) readOperators(ctx context.Context, list *operatorList, all []fleet.Operator) ([]fleet.Operator, error) {
	var unread []*fleet.Operator
	for i := range all {
		if known, ok := list.read[all[i].Key()]; ok {
			all[i] = known.Operator
		} else {
			unread = append(unread, &all[i])
		}
	}
	if len(unread) > 0 {
		if err := r.cfg.Admission.Reads(unread[0].Tenant, len(unread)); err != nil {
			return nil, err
		}
	}
	records := make([]operatorRecord, len(unread))
	err := r.alone(ctx, func() error {
		reads, within := errgroup.WithContext(ctx)
		reads.SetLimit(operatorReads)
		for i, o := range unread {
			reads.Go(func() (err error) {
				records[i], err = r.readJudged(within, *o, list.tombstone(*o) != "")
				return err
			})
		}
		return reads.Wait()
	})
	if err != nil {
		return nil, err
	}
	for i, o := range unread {
		if *o = records[i].Operator; o.ID != "" {
			list.read[o.Key()] = readOperator{records[i].etag, list.tombstone(*o), *o}
		}
	}
	return slices.DeleteFunc(all, func(o fleet.Operator) bool { return o.ID == "" }), nil
}

// RemoveOperator implements operators.Registry. The record stays and is marked as removed, as
// is a tombstone beside it: were it deleted, its nonce would be valid again. Leaders of
// several shards may call it concurrently: one of the writes succeeds.
func (r *Registry) RemoveOperator(ctx context.Context, tenant string, id, by fleet.InstanceID) (removed fleet.Operator, err error) {
	if err := r.cfg.Admission.Removal(tenant, by); err != nil {
		return fleet.Operator{}, err
	}
	err = r.cfg.Writes.Do(ctx, func(ctx context.Context) error {
		return r.cfg.Fence.Act(ctx, func(ctx context.Context) error {
			if removed, err = r.markRemoved(ctx, tenant, id, by); err == nil {
				r.cfg.Roster.Removed(tenant, id) // permanently, in later terms too
			}
			return err
		})
	})
	if err != nil {
		r.cfg.Roster.Doubt(tenant, id)
		// A registration by an abandoned call may still land after a NotFound. It grants
		// nothing: that call returned no certificate, and a repeated one succeeds with or
		// without the record for as long as the nonce is valid.
		if errors.Is(err, object.ErrNotFound) {
			return fleet.Operator{}, rpc.NotFound.Errorf("no such operator %s", id)
		}
		return fleet.Operator{}, writes.Kind(err)
	}
	r.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "operator removed", slog.String("operator", string(id)),
		slog.String("tenant", tenant), slog.String("by", string(removed.RemovedBy)))
	return removed, nil
}

// conflictPause is how long a removal waits after a conflict with another write.
const conflictPause = 100 * time.Millisecond

// OperatorHere implements operators.Registry.
func (r *Registry) OperatorHere(tenant string, id fleet.InstanceID) bool {
	return r.cfg.Roster.Here(tenant, id)
}
