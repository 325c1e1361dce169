package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// This file is how a static config becomes the one that runs. All that a later
// leader has to know is durable first: groups that live on without their static
// definition, then the config itself, in applied/. Only then is it swapped in.

// atTakeover keeps the config of this term as the one that was last accepted. While
// dynamic groups can't be read that may live on without their static definition it is
// not, because they must be known before their last definition is overwritten; the term
// runs it all the same, and late makes up for it.
func (r *refresher) atTakeover(ctx context.Context) error {
	c := r.choose(r.config.now())
	if c.recorded {
		return nil
	}
	if bytes.Equal(c.body, r.config.now().body) {
		r.config.swap(c) // with what it waits for, whatever becomes of the rest
	}
	permits := func(last appliedConfig) error {
		if last.etag != c.seen {
			return fmt.Errorf("%s has changed since the config was chosen: take over anew", r.applied.key)
		}
		return r.unasked(last, c)
	}
	err := r.accept(ctx, c, permits, func(swap func()) error { swap(); return nil })
	if errors.Is(err, errUnreadable) {
		return nil
	}
	return err
}

// unasked refuses a config that takes groups away from the one that was accepted last
// which have instances, or may have: what a listing lacks is not gone. Where that is not
// known there is nothing to compare with.
func (r *refresher) unasked(last appliedConfig, c Accepted) error {
	if last.shard == nil || bytes.Equal(last.body, c.body) {
		return nil
	}
	return r.removals.permits(last.shard, c.shard, nil)
}

// choose decides between config/ and the last accepted config at a takeover, which
// accepts no config that takes away groups with instances: only a refresh that names
// them does.
func (r *refresher) choose(c Accepted) Accepted {
	if c.other == nil {
		return c
	}
	held, next := *c.other, c
	if c.fromApplied {
		held, next = c, *c.other
	}
	held.other, next.other = nil, nil
	removals, _ := r.removals.removals(held.shard, next.shard)
	_, ending := restartFields(r.cfg.Boot, next.shard)
	switch {
	case len(removals) > 0:
		held.awaits = removals
	case len(ending) > 0: // the server was started on the one that was accepted
		held.problems = waitsForRefresh()
	default:
		return next.on(r.cfg.Boot)
	}
	return held.on(r.cfg.Boot)
}

// late does what a takeover could not do, if it couldn't. It reports what goes wrong
// itself; the error says that it is to be tried again.
func (r *refresher) late() error {
	release, err := r.begin(r.term)
	if err != nil {
		return err
	}
	defer release()
	c := r.config.now()
	if c.recorded {
		return nil
	}
	permits := func(last appliedConfig) error { return r.unasked(last, c) }
	err = r.accept(r.term, c, permits, r.betweenPasses(c.shard))
	if errors.Is(err, errUnreadable) {
		return nil // it is tried again once they can be read
	}
	if err != nil && r.term.Err() == nil {
		r.problems.report(fleet.Problem{At: r.cfg.Now(), Reason: reconcile.ReasonStorage, Message: err.Error()})
	}
	return err
}

// accept makes c the config that runs: durable first, then, by commit, in place. permits
// is asked before anything is written, with no edit under way, and again when dynamic
// groups are what the store holds. When the error is nil this
// server still led after the last write had landed.
func (r *refresher) accept(
	ctx context.Context, c Accepted, permits func(last appliedConfig) error, commit func(swap func()) error,
) error {
	return r.groups.records.writes.do(ctx, func(ctx context.Context) error {
		last, err := r.cfg.Static.readApplied(ctx)
		if err != nil {
			return err
		}
		if err := r.applied.saw(last.header, last.etag); err != nil {
			return err
		}
		keep := func(ctx context.Context) error {
			r.config.unrecord()
			err := r.record(ctx, c, last)
			if err == nil {
				err = r.cfg.Fence.Check(ctx)
			}
			if err != nil {
				r.doubt() // until the config that runs is the one that is kept
			}
			return err
		}
		before := r.others(c, last)
		c.recorded = true
		permitted := func() error { return permits(last) }
		return r.groups.accept(ctx, c.shard, before, permitted, keep, func(swap func()) error {
			return commit(func() { swap(); r.config.swap(c) })
		})
	})
}

// others are the static configs that c comes after, the most recent first. One that
// has the very text of c leaves nothing behind that would have to live on.
func (r *refresher) others(c Accepted, last appliedConfig) (before []*config.Shard) {
	if now := r.config.now(); !bytes.Equal(now.body, c.body) {
		before = append(before, now.shard)
	}
	if last.shard != nil && !bytes.Equal(last.body, c.body) {
		before = append(before, last.shard)
	}
	return before
}

// record keeps a newly accepted config in place of last, for the next leader that
// finds an invalid one. Nothing is written when this term has written the same;
// another's word is not enough, because what that term sent before may still be
// under way.
func (r *refresher) record(ctx context.Context, c Accepted, last appliedConfig) error {
	if r.applied.proven && bytes.Equal(last.body, c.body) {
		return nil
	}
	over, body := r.applied.over(), config.WithHeader(r.applied.next(), c.body)
	err := r.cfg.Fence.Act(ctx, func(ctx context.Context) error {
		etag, err := object.Settle(ctx, r.cfg.Store, r.applied.key, body, over)
		if err == nil {
			r.applied.landed(etag)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("keep the accepted config: %w", err)
	}
	return nil
}

// betweenPasses commits a swap in the running loop.
func (r *refresher) betweenPasses(next *config.Shard) func(swap func()) error {
	return func(swap func()) error { return r.loop.Reconfigure(tuning(next), swap) }
}

// accept goes over from the static configs in before, the most recent first, to
// next. No edit comes in between: one that was made for the old static config
// would be lost. The caller's commit runs the swap.
func (g *groups) accept(ctx context.Context, next *config.Shard, before []*config.Shard, permitted func() error,
	keep func(context.Context) error, commit func(swap func()) error,
) error {
	release, err := g.begin(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := permitted(); err != nil {
		return err
	}
	if err := g.carryOver(ctx, next, before); err != nil {
		return err
	}
	if err := permitted(); err != nil { // an entry by which a group was to live on may be gone
		return err
	}
	if err := keep(ctx); err != nil {
		return err
	}
	defer g.altered()
	merged := g.merge(next)
	return commit(func() { g.become(merged) })
}

// carryOver makes durable what is to live on without its static definition. Where
// none came before, or no group of a tenant loses its own, there is nothing to be sure of.
func (g *groups) carryOver(ctx context.Context, next *config.Shard, before []*config.Shard) error {
	if len(before) == 0 && g.brokenForAll() == nil {
		return nil
	}
	if g.brokenForAll() != nil {
		if _, err := g.load(ctx); err != nil {
			return err
		}
		if err := g.brokenForAll(); err != nil {
			return unreadableEdit(err)
		}
	}
	names := losing(next, before)
	for _, name := range reviving(g, next) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		e := &edit{key: fleet.GroupKey{Tenant: name}, done: make(chan error, 1)}
		e.change = func(now state) (config.Dynamic, error) { return succeed(now.entries, name, next, before), nil }
		g.commit(ctx, g.of(name), []*edit{e})
		if err := <-e.done; err != nil {
			return err
		}
	}
	return nil
}

// losing are the tenants of which a group that one before defined is none of next's, or
// which are none of next's themselves, sorted.
func losing(next *config.Shard, before []*config.Shard) []string {
	names := map[string]bool{}
	for _, past := range before {
		for tenant := range past.Tenants {
			names[tenant] = names[tenant] || !next.HasTenant(tenant)
		}
		for tenant, groups := range past.Groups {
			for name := range groups {
				_, is := next.Static(fleet.GroupKey{Tenant: tenant, Name: name})
				names[tenant] = names[tenant] || !is
			}
		}
	}
	maps.DeleteFunc(names, func(_ string, loses bool) bool { return !loses })
	return slices.Sorted(maps.Keys(names))
}

// reviving are the tenants that have marks of groups that are to be emptied, and which
// next names. The caller holds all turns.
func reviving(g *groups, next *config.Shard) (names []string) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for name, t := range g.tenants {
		if t.entries == nil || t.broken != nil {
			continue
		}
		d := t.entries.Dynamic(name)
		if len(d.Revive(name, next).Groups[name]) != len(d.Groups[name]) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// succeed carries a tenant's dynamic groups over to the next static config. A group that
// one before it defined, and next does not, lives on if it has an entry of its own; else
// it gets one that says that it is to be emptied, so that every later leader knows. The
// groups of a tenant that is no more are deleted: no caller could do it later.
func succeed(d config.Dynamic, tenant string, next *config.Shard, before []*config.Shard) config.Dynamic {
	for n := len(before) - 1; n >= 0; n-- { // the most recent has the last word
		d = d.Adopt(before[n], next)
	}
	for _, past := range before {
		d = d.Succeed(tenant, past, next)
		if next.HasTenant(tenant) || !past.HasTenant(tenant) {
			continue
		}
		for name := range d.Groups[tenant] {
			d = d.Remove(fleet.GroupKey{Tenant: tenant, Name: name})
		}
	}
	return d.Revive(tenant, next)
}
