package groups

import (
	"context"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// tombstoneRetention is the minimum age of a group's tombstone before it is removed. By then no
// write of an earlier leader can land.
const tombstoneRetention = 7 * 24 * time.Hour

// maxPruned bounds the tombstones that are removed in one run, one after the other, to leave the
// store to more important work.
const maxPruned = 1000

// pruning removes the tombstones of groups that were deleted long ago.
type pruning struct{ groups *Groups }

// run removes old tombstones of groups that static config does not name.
func (p pruning) run(ctx context.Context) {
	g := p.groups
	before := g.cfg.Now().Add(-tombstoneRetention)
	for _, key := range p.old(before) {
		err := g.records.Writes.Do(ctx, func(ctx context.Context) error {
			pruned, err := g.records.Writer.PruneGroup(ctx, key, before)
			if pruned {
				p.forget(key)
			}
			return err
		})
		if err != nil {
			g.cfg.Logger.Warn("can't prune tombstones of groups, retrying in an hour", slog.Any("error", err))
			return
		}
	}
}

func (p pruning) old(before time.Time) (keys []fleet.GroupKey) {
	g := p.groups
	g.mu.RLock()
	defer g.mu.RUnlock()
	for key, k := range g.kept {
		_, isStatic := g.static.Static(key)
		if at := k.record.DeletedAt; at != nil && at.Before(before) && !isStatic && len(keys) < maxPruned {
			keys = append(keys, key)
		}
	}
	return keys
}

// forget drops the state of a group whose tombstone was removed.
func (p pruning) forget(key fleet.GroupKey) {
	g := p.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.kept[key]
	g.tenant(key.Tenant).tombstones -= tombstone(k.record)
	g.lastPruned = max(g.lastPruned, k.record.Revision)
	delete(g.kept, key)
}
