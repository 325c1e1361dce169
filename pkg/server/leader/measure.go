package leader

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/measure"
	"github.com/nstance/nstance/pkg/server/operators"
)

// This file is the term as the server's metrics show it.

// Measure returns the state of the term, from memory.
func (t *Term) Measure() *measure.Term {
	load := t.loop.Load()
	out := &measure.Term{
		Due: load.Due, Queued: load.Queued, Creating: load.Creating, Changes: load.Changes,
		Throttled: map[string]float64{}, Problems: t.problems.Reasons(),
	}
	now := t.cfg.Now()
	for _, is := range load.Throttled {
		out.Throttled[is.Calls] = now.Sub(is.Since).Seconds()
	}
	shard := t.Operators()
	for _, key := range t.groups.Keys() {
		out.Groups = append(out.Groups, t.measureGroup(shard, key, now))
	}
	return out
}

func (t *Term) measureGroup(shard operators.Shard, key fleet.GroupKey, now time.Time) measure.Group {
	sizes := shard.Sizes(key)
	g := measure.Group{
		Key: key, Wanted: sizes.Wanted, Actual: sizes.Actual, Outdated: sizes.Actual - sizes.UpToDate, Ready: sizes.Ready,
		Phases: map[fleet.Phase]int{},
	}
	for _, i := range t.records.Group(key) {
		g.Phases[i.Phase]++
		if i.Phase == fleet.Running && !t.loop.Health(i.ID).Connected {
			g.Silent++
		}
	}
	if f, failing := t.loop.CreatesFailing(key); failing {
		g.CreatesFailing, g.CreateFailures = true, f.Failures
		if !f.Next.IsZero() {
			g.NextCreate = f.Next.Sub(now)
		}
	}
	return g
}

// follow records what has become of an instance, if it is a replacement, or is being started.
func (t *Term) follow(id fleet.InstanceID) {
	if t.cfg.Starts == nil && !t.cfg.Replacements.Follows(id) {
		return
	}
	t.cfg.Starts.Pending(id, t.records.Get)
	if !t.cfg.Starts.Follows(id) && !t.cfg.Replacements.Follows(id) {
		return
	}
	i, ok := t.records.Get(id)
	if !ok {
		t.cfg.Replacements.Changed(id, fleet.Deleted, false, t.cfg.Now())
		t.cfg.Starts.Changed(t.ctx, fleet.Instance{ID: id}, false)
		return
	}
	g, _ := t.groups.Group(i.GroupKey())
	h := t.loop.Health(id)
	ready := !h.LastReportAt.IsZero() && (!h.WithoutFiles || !g.AwaitsFiles())
	t.cfg.Replacements.Changed(id, i.Phase, ready, t.cfg.Now())
	t.cfg.Starts.Changed(t.ctx, i, ready)
}
