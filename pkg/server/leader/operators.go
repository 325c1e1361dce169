package leader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/record"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/roster"
)

// registry keeps the records of the cluster's operators. Safe for concurrent use.
type registry struct {
	cfg    Config
	writes *writes
	roster *roster.Roster
	// listings holds one while the records of operators are listed for a caller.
	listings chan struct{}
}

var _ operators.Registry = (*registry)(nil)

// BindOperator creates the operator's record by one if-absent write, which
// spends its nonce and records it at once. Which server of which shard made it
// is no matter; a repeated registration finds the record that counts.
func (r *registry) BindOperator(ctx context.Context, o fleet.Operator) (fleet.Operator, error) {
	body, err := json.Marshal(o.Written(r.cfg.Fence.Epoch(), r.cfg.Writer))
	if err != nil {
		return fleet.Operator{}, err
	}
	err = r.writes.do(ctx, func(ctx context.Context) error {
		return r.cfg.Fence.Act(ctx, func(ctx context.Context) error {
			_, err := object.Settle(ctx, r.cfg.Store, o.Key(), body, object.IfAbsent())
			return err
		})
	})
	if !errors.Is(err, object.ErrConflict) {
		return o, kind(err)
	}
	found, err := r.cfg.Store.Get(ctx, o.Key())
	if err != nil {
		return fleet.Operator{}, kind(err)
	}
	there, _, err := record.Decode[fleet.Operator](found.Body)
	if err != nil {
		return fleet.Operator{}, fmt.Errorf("read operator record %s: %w", o.Key(), err)
	}
	return there, kind(r.cfg.Fence.Check(ctx))
}

// operatorReads is how many records of operators are read at a time.
const operatorReads = 8

// Operators implements operators.Registry.
func (r *registry) Operators(
	ctx context.Context, tenant string, after fleet.InstanceID, limit int,
) (found []fleet.Operator, next fleet.InstanceID, err error) {
	select { // a list costs many reads: one at a time leaves the store to the shard's own
	case r.listings <- struct{}{}:
		defer func() { <-r.listings }()
	case <-ctx.Done():
		return nil, "", kind(context.Cause(ctx))
	}
	infos, err := object.All(ctx, r.cfg.Operators, fleet.OperatorPrefix+tenant+".")
	if err != nil {
		return nil, "", kind(err)
	}
	for _, i := range infos {
		_, id, err := fleet.ParseOperatorKey(i.Key)
		if err != nil || (after != "" && i.Key <= fleet.OperatorKey(tenant, after)) {
			continue // what is no operator's record says nothing of any
		}
		if len(found) == limit {
			next = found[limit-1].ID
			break
		}
		found = append(found, fleet.Operator{ID: id, Tenant: tenant})
	}
	found, err = r.readOperators(ctx, found)
	return found, next, kind(err)
}

// readOperators reads the records whose ids are given. One that was deleted by
// hand meanwhile is left out.
func (r *registry) readOperators(ctx context.Context, all []fleet.Operator) ([]fleet.Operator, error) {
	reads, within := errgroup.WithContext(ctx)
	reads.SetLimit(operatorReads)
	for i := range all {
		reads.Go(func() error {
			o, err := r.readOperator(within, all[i].Tenant, all[i].ID)
			if errors.Is(err, object.ErrNotFound) {
				err = nil
			}
			all[i] = o.Operator
			return err
		})
	}
	if err := reads.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(o fleet.Operator) bool { return o.ID == "" }), nil
}

// operatorRecord is a record as it was read.
type operatorRecord struct {
	fleet.Operator
	unknown record.Unknown
	etag    object.ETag
}

// readOperator reads a record. Of a damaged one only whose it is remains, which
// its key says.
func (r *registry) readOperator(ctx context.Context, tenant string, id fleet.InstanceID) (operatorRecord, error) {
	found, err := r.cfg.Operators.Get(ctx, fleet.OperatorKey(tenant, id))
	if err != nil {
		return operatorRecord{}, err
	}
	o, unknown, err := record.Decode[fleet.Operator](found.Body)
	if err != nil || o.Check(tenant, id) != nil || record.CheckNumber("rev", o.Rev) != nil {
		o, unknown = fleet.Operator{ID: id, Tenant: tenant}, record.Unknown{}
	}
	return operatorRecord{o, unknown, found.ETag}, nil
}

// RemoveOperator implements operators.Registry. The record stays, and says that
// the operator was removed: were it deleted, its nonce would be as good as new.
// Several leaders may do it at once: one of them writes.
func (r *registry) RemoveOperator(ctx context.Context, tenant string, id, by fleet.InstanceID) (removed fleet.Operator, err error) {
	err = r.writes.do(ctx, func(ctx context.Context) error {
		return r.cfg.Fence.Act(ctx, func(ctx context.Context) error {
			if removed, err = r.markRemoved(ctx, tenant, id, by); err == nil {
				r.roster.Removed(tenant, id) // for good, whoever leads
			}
			return err
		})
	})
	if err != nil {
		r.roster.Doubt(tenant, id)
		// A registration that was given up may still land after a NotFound. It gives
		// nothing to anyone: its call was not answered with a certificate, and to repeat it
		// succeeds with or without that record, for as long as the nonce is good.
		if errors.Is(err, object.ErrNotFound) {
			return fleet.Operator{}, rpc.NotFound.Errorf("no such operator %s", id)
		}
		return fleet.Operator{}, kind(err)
	}
	r.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "operator removed", slog.String("operator", string(id)),
		slog.String("tenant", tenant), slog.String("by", string(removed.RemovedBy)))
	return removed, nil
}

// markRemoved writes that an operator is removed, unless the record says so
// already. A change in between can only have been another's removal.
func (r *registry) markRemoved(ctx context.Context, tenant string, id, by fleet.InstanceID) (fleet.Operator, error) {
	for {
		was, err := r.readOperator(ctx, tenant, id)
		if err != nil || was.RemovedAt != nil {
			return was.Operator, err
		}
		o := was.Remove(by, r.cfg.Now()).Written(r.cfg.Fence.Epoch(), r.cfg.Writer)
		body, err := record.Encode(o, was.unknown)
		if err != nil {
			return fleet.Operator{}, err
		}
		_, err = object.Settle(ctx, r.cfg.Store, o.Key(), body, object.IfMatch(was.etag))
		if !errors.Is(err, object.ErrConflict) {
			return o, err
		}
		if err := retry.Wait(ctx, conflictPause); err != nil {
			return fleet.Operator{}, fmt.Errorf("remove operator %s: %w: %w", id, object.ErrConflict, err)
		}
	}
}

// conflictPause is how long a removal waits when somebody else has written.
const conflictPause = 100 * time.Millisecond

// OperatorHere implements operators.Registry.
func (r *registry) OperatorHere(tenant string, id fleet.InstanceID) bool {
	return r.roster.Here(tenant, id)
}
