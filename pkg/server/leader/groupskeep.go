package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
)

// This file is about reading and writing the groups again while the term lasts.

// keepRead reads the groups again and again until ctx, the term, ends. acceptLate
// does what had to wait until they can be read.
func (g *groups) keepRead(ctx context.Context, lease time.Duration, acceptLate func() error) {
	wait, first := lease, true
	for retry.Wait(ctx, wait) == nil {
		wait = groupsInterval
		switch err := g.reload(ctx); {
		case err != nil:
			wait = groupsRetryInterval
		case first && g.brokenForAll() == nil:
			first = false
			g.doubt()
		}
		g.tell()
		if err := acceptLate(); err != nil || g.unreadable() != nil {
			wait = groupsRetryInterval
		}
	}
}

// settle has the object of each tenant written that this term has not, or of which it is
// not known what became of the last write. It waits for no turn but that of each: while
// one hangs the others go on. What can't be read is settled once it can.
func (g *groups) settle(ctx context.Context) error {
	g.mu.RLock()
	static := g.static
	g.mu.RUnlock()
	var writes errgroup.Group
	writes.SetLimit(moves)
	for _, t := range g.all(static) {
		writes.Go(func() error {
			err := g.edit(ctx, &edit{key: fleet.GroupKey{Tenant: t.name}})
			if errors.Is(err, errUnreadable) {
				return nil
			}
			return err
		})
	}
	return writes.Wait()
}

// reload reads the groups again, and has them acted on when they have changed.
func (g *groups) reload(ctx context.Context) error {
	release, err := g.begin(ctx)
	if err != nil {
		return err
	}
	defer release()
	differs, err := g.load(ctx)
	if differs {
		g.changed()
	}
	return err
}

// begin waits until no edit is under way, and keeps others from beginning.
func (g *groups) begin(ctx context.Context) (release func(), err error) {
	if err := g.turns.Acquire(ctx, allTurns); err != nil {
		return nil, fmt.Errorf("wait for the edit before: %w", context.Cause(ctx))
	}
	return func() { g.turns.Release(allTurns) }, nil
}
