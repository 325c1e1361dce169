package groups

import (
	"cmp"
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// This file handles records that a listing returned late. Each instance holds the revision of its
// group that it was created by. If that is later than the known record, or if a group has more
// instances than its static size and no known record, or if an instance of an earlier leader is
// found that the takeover did not know, the group's record is read by its key and judged before the
// group is reconciled: a size that is too small removes machines.

// late is the set of records that have to be read by key.
type late struct {
	mu    sync.Mutex
	keys  map[fleet.GroupKey]bool
	woken chan struct{} // holds one token while the set is not empty
}

func newLate() *late { return &late{keys: map[fleet.GroupKey]bool{}, woken: make(chan struct{}, 1)} }

// add schedules a record to be read.
func (l *late) add(key fleet.GroupKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys[key] = true
	select {
	case l.woken <- struct{}{}:
	default: // already woken
	}
}

// drain returns the keys added since the last call.
func (l *late) drain() map[fleet.GroupKey]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := l.keys
	l.keys = map[fleet.GroupKey]bool{}
	return keys
}

// isBehind reports whether there may be a later record of a group than the known one. The caller
// holds mu.
func (g *Groups) isBehind(key fleet.GroupKey, is config.GroupRecord) bool {
	k := g.kept[key]
	now := g.records.Traces(key)
	if isLate(g, key, now.Found) {
		return true
	}
	if k.err != nil {
		return false
	}
	if now.Revision > max(is.StoredRevision(), k.read.traces.Revision) {
		return true
	}
	return !is.Stored() && !k.read.done && now.Records > g.merged[key].Size
}

// isLate reports whether an instance of an earlier leader has been found since the takeover, or since the
// group's record was last read by its key. The caller holds mu.
func isLate(g *Groups, key fleet.GroupKey, found uint64) bool {
	return !g.taking && found > max(g.atTakeover[key], g.kept[key].read.traces.Found)
}

// toBeRead reports whether a group may have a later record, which is to be read by its key.
func toBeRead(g *Groups, key fleet.GroupKey) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.isBehind(key, g.kept[key].record)
}

// Current returns the groups as the loop is to see them.
func Current(g *Groups) reconcile.Groups { return abreast{g} }

// abreast is groups as the loop sees them.
type abreast struct{ *Groups }

// Group is groups.Group, except that a group that may have a later record is disabled until
// that is read.
func (g abreast) Group(key fleet.GroupKey) (fleet.Group, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	group, ok := g.group(key)
	if k := g.kept[key]; (group.Disabled == "" || k.err == nil) && g.isBehind(key, k.record) {
		group.Disabled = cmp.Or(group.Disabled, "its record may be stale; the latest one is being read")
		g.late.add(key)
	}
	return group, ok
}

// readUnlisted reads, before the term acts, the records that may be stale by their keys.
// Instances that are gone indicate their groups, too.
func (g *Groups) readUnlisted(ctx context.Context) error {
	g.Become(g.static) // so that sizes can be compared with the instances
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(maxEdits)
	for key := range groupsOf(g.records) {
		state := g.records.GroupState(key)
		g.mu.RLock()
		behind := g.isBehind(key, state.Record)
		g.mu.RUnlock()
		if behind && state.Err == nil {
			reads.Go(func() error { return g.readByKey(ctx, key) })
		}
	}
	return reads.Wait()
}

// RunReads reads the records that Group found to be stale, until ctx, the term, ends.
func (g *Groups) RunReads(ctx context.Context) {
	pauses := retry.Backoff{First: groupsAgain, Limit: groupsRetryInterval, Least: groupsAgain}
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-g.late.woken:
		}
		failed := readAll(ctx, g, g.late.drain()) != nil
		if failures++; !failed {
			failures = 0
			continue
		}
		if retry.Wait(ctx, pauses.Draw(failures, g.cfg.Uniform)) != nil {
			return
		}
		g.cfg.Changed() // Group schedules stale records again
	}
}

// readAll reads records by their keys. It returns the first error, after all reads.
func readAll(ctx context.Context, g *Groups, keys map[fleet.GroupKey]bool) error {
	var reads errgroup.Group
	reads.SetLimit(maxEdits)
	for key := range keys {
		reads.Go(func() error {
			err := g.readByKey(ctx, key)
			if err == nil {
				g.cfg.Changed(key)
			}
			return err
		})
	}
	return reads.Wait()
}

// readByKey reads a record by its key and applies it before the group counts as read: the loop
// must not act on the previous record in between.
func (g *Groups) readByKey(ctx context.Context, key fleet.GroupKey) error {
	traces := g.records.Traces(key)
	if err := g.records.ReadGroup(ctx, key); err != nil {
		return err
	}
	if g.follow(key) {
		Problems{g}.reportOne(key)
	}
	if err := g.records.GroupState(key).Err; err != nil && !g.taking {
		return err // what was found is judged once the record can be read
	}
	g.mu.Lock()
	k := g.kept[key]
	k.read = readByKey{true, traces}
	g.kept[key] = k
	g.mu.Unlock()
	if !g.taking {
		Problems{g}.reportNewlyMissing(key)
	}
	return nil
}
