package groups

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
)

// This file reads and rewrites the records of groups while the term lasts.

// RunRelisting lists the records repeatedly until ctx, the term, ends: a lease after the
// takeover, then at doubling intervals, because late writes of earlier leaders become less
// likely. acceptLate retries what could not be done at the takeover.
func (g *Groups) RunRelisting(ctx context.Context, lease time.Duration, acceptLate func() error) {
	for wait, next := lease, lease; retry.Wait(ctx, wait) == nil; {
		next = min(2*next, groupsInterval)
		wait = next
		err := g.reload(ctx)
		Problems{g}.ReportAll()
		if next == groupsInterval && err == nil {
			pruning{g}.run(ctx)
		}
		if lateErr := acceptLate(); err != nil || lateErr != nil || len(g.which(keptRecord.unreadable)) > 0 {
			wait = min(wait, groupsRetryInterval)
		}
	}
}

// ResolveDoubts writes the records whose last write has an unknown outcome, and those that the
// store lacks. Each write holds only its own turn: while one hangs, the others go on.
func (g *Groups) ResolveDoubts(ctx context.Context) error {
	keys := map[fleet.GroupKey]bool{}
	for _, key := range g.records.DoubtfulGroups() {
		keys[key] = true
	}
	for _, key := range g.which(keptRecord.notStored) {
		keys[key] = true
	}
	var writes errgroup.Group
	writes.SetLimit(maxEdits)
	for _, key := range slices.SortedFunc(maps.Keys(keys), fleet.GroupKey.Compare) {
		writes.Go(func() error {
			return g.edit(ctx, edit{key: key, durable: true, leaves: true, change: func(now groupNow) (config.GroupRecord, error) {
				if !now.record.Stored() {
					return now.record.Forget(g.cfg.Now()), nil
				}
				return now.record, nil
			}})
		})
	}
	return writes.Wait()
}

// reload lists the records again and reconciles the groups that changed.
func (g *Groups) reload(ctx context.Context) error {
	if err := g.records.RelistGroups(ctx); err != nil {
		return err
	}
	_, err := judgeAnew(g)
	return err
}

// judgeAnew judges the records that changed, and has the groups that differ, which it returns, reconciled.
func judgeAnew(g *Groups) (differ []fleet.GroupKey, err error) {
	differ, err = g.judgeAll()
	if len(differ) > 0 {
		g.cfg.Altered(differ...)
		g.cfg.Changed(differ...)
	}
	return differ, err
}

// LockEdits waits until no edit is under way, and blocks new ones until release is called.
func (g *Groups) LockEdits(ctx context.Context) (release func(), err error) {
	if err := g.turns.Acquire(ctx, allTurns); err != nil {
		return nil, fmt.Errorf("wait for running edits: %w", context.Cause(ctx))
	}
	return func() { g.turns.Release(allTurns) }, nil
}
