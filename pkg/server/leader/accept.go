package leader

import (
	"bytes"
	"context"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// This file is how a static config becomes the one that runs. All that a later
// leader has to know is durable first: groups that live on without their static
// definition, then the config itself, in applied/. Only then is it swapped in.

// on is c as a process that was started on boot can run it.
func (c Accepted) on(boot *config.Shard) Accepted {
	c.restart = restartFields(boot, c.shard)
	c.shard = keepBoot(boot, c.shard)
	return c
}

// acceptAtTakeover keeps the config of this term as the one that was last
// accepted. While dynamic groups can't be read it is not, because a group that
// lives on must be known before its last definition is overwritten; the term runs
// it all the same, and acceptLate makes up for it.
func (t *Term) acceptAtTakeover(ctx context.Context) error {
	c := t.static.now()
	if !t.acceptable(c) {
		return nil
	}
	return t.accept(ctx, c, func(swap func()) error { swap(); return nil })
}

func (t *Term) acceptable(c Accepted) bool {
	return !c.recorded && t.wanted.unreadable() == nil
}

// acceptLate does what a takeover could not do, if it couldn't. It reports what
// goes wrong itself; the error says that it is to be tried again.
func (t *Term) acceptLate() error {
	release, err := t.beginRefresh(t.ctx)
	if err != nil {
		return err
	}
	defer release()
	c := t.static.now()
	if !t.acceptable(c) {
		return nil
	}
	if err = t.accept(t.ctx, c, t.swapBetweenPasses(c.shard)); err != nil && t.ctx.Err() == nil {
		t.troubles.report(fleet.Problem{At: t.cfg.Now(), Reason: reconcile.ReasonStorage, Message: err.Error()})
	}
	return err
}

// accept makes c the config that runs: durable first, then, by commit, in place.
// When the error is nil this server still led after the last write had landed.
func (t *Term) accept(ctx context.Context, c Accepted, commit func(swap func()) error) error {
	return t.writes.do(ctx, func(ctx context.Context) error {
		last, err := t.cfg.Static.readApplied(ctx)
		if err != nil {
			return err
		}
		if err := t.applied.saw(last.header, last.etag); err != nil {
			return err
		}
		keep := func(ctx context.Context) error {
			t.static.unrecord()
			err := t.recordApplied(ctx, c, last)
			if err == nil {
				err = t.fence.Check(ctx)
			}
			if err != nil {
				t.doubt() // until the config that runs is the one that is kept
			}
			return err
		}
		before := t.others(c, last)
		c.recorded = true
		return t.wanted.accept(ctx, c.shard, before, keep, func(swap func()) error {
			return commit(func() { swap(); t.static.swap(c) })
		})
	})
}

// others are the static configs that c comes after, the most recent first. One that
// has the very text of c leaves nothing behind that would have to live on.
func (t *Term) others(c Accepted, last appliedConfig) (before []*config.Shard) {
	if now := t.static.now(); !bytes.Equal(now.body, c.body) {
		before = append(before, now.shard)
	}
	if last.shard != nil && !bytes.Equal(last.body, c.body) {
		before = append(before, last.shard)
	}
	return before
}

// swapBetweenPasses commits a swap in the running loop.
func (t *Term) swapBetweenPasses(next *config.Shard) func(swap func()) error {
	return func(swap func()) error { return t.loop.Reconfigure(tuning(next), swap) }
}

func (t *Term) requestTimeout() time.Duration {
	return time.Duration(t.static.shard().Server.RequestTimeout)
}

// accept goes over from the static configs in before, the most recent first, to
// next. No edit comes in between: one that was made for the old static config
// would be lost. The caller's commit runs the swap.
func (w *wanted) accept(ctx context.Context, next *config.Shard, before []*config.Shard, keep func(context.Context) error, commit func(swap func()) error) error {
	release, err := w.begin(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := w.carryOver(ctx, next, before); err != nil {
		return err
	}
	if err := keep(ctx); err != nil {
		return err
	}
	groups, problems := next.Resolve(w.dynamic)
	defer w.altered()
	return commit(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.static, w.groups, w.problems = next, groups, problems
	})
}

// carryOver makes durable what is to live on without its static definition. Where
// none came before there is nothing to be sure of.
func (w *wanted) carryOver(ctx context.Context, next *config.Shard, before []*config.Shard) error {
	if len(before) == 0 && w.unreadable() == nil {
		return nil
	}
	unasked := func(context.Context) error { return nil } // keep asks
	return w.apply(ctx, unasked, func(d config.Dynamic) (config.Dynamic, error) { return succeed(d, next, before), nil })
}

// succeed carries dynamic groups over to the next static config. A group that one
// before it defined, and next does not, lives on if it has an entry of its own.
// The groups of a tenant that is no more are deleted: nobody could do it later.
func succeed(d config.Dynamic, next *config.Shard, before []*config.Shard) config.Dynamic {
	for n := len(before) - 1; n >= 0; n-- { // the most recent has the last word
		d = d.Adopt(before[n], next)
	}
	for _, past := range before {
		for tenant, groups := range d.Groups {
			if next.HasTenant(tenant) || !past.HasTenant(tenant) {
				continue
			}
			for name := range groups {
				d = d.Remove(fleet.GroupKey{Tenant: tenant, Name: name})
			}
		}
	}
	return d
}
