package leader

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
)

// maxConflicts is how often an edit is tried that other writes come before. Nobody
// but this leader is to write there, so that is plenty.
const maxConflicts = 6

// conflictBackoff is how long it waits in between.
func conflictBackoff() retry.Backoff {
	return retry.Backoff{First: 50 * time.Millisecond, Limit: 1600 * time.Millisecond, Least: 25 * time.Millisecond}
}

// round is one try to make edits durable together.
type round struct {
	*groups
	tenant *tenant
	draft  *config.Draft
	merged map[fleet.GroupKey]resolved // the groups that the draft changes
	sound  []*edit
	// refused rest on what the draft's version holds, or does not hold, and on the edits
	// before them in the round: their answer is good only once that is durable.
	refused map[*edit]error
	asked   bool // one of the edits is a caller's, who acts on the answer
}

// resolved is a group as a draft makes it.
type resolved struct {
	group    fleet.Group
	defined  bool
	problems config.Problems
}

// commit applies edits, one after another, to the newest dynamic groups of a tenant,
// makes the result durable, and answers each. One that is refused leaves nothing behind.
// What changes nothing writes nothing if this term has written what is there, as long as
// this server may still answer for the shard. What was only read is written again, so
// that no write which is still under way somewhere can undo what the callers are told.
// That goes for refusals too: the write of an earlier call may be about to make the very
// group that a deletion does not find.
func (g *groups) commit(ctx context.Context, t *tenant, edits []*edit) {
	defer func() {
		if t.stale {
			g.doubt()
		}
	}()
	for tries := 1; ; tries++ {
		if err := g.freshen(ctx, t); err != nil {
			answer(edits, err)
			return
		}
		r := &round{groups: g, tenant: t, draft: t.entries.Draft(), merged: map[fleet.GroupKey]resolved{}, refused: map[*edit]error{}}
		r.apply(edits)
		err := r.settle(ctx)
		if err == nil || !conflicting(err, tries) {
			r.answer(edits, err)
			return
		}
		// Another write came first: its version is read, and the changes applied to it.
		if end := retry.Wait(ctx, conflictBackoff().Draw(tries, g.cfg.Uniform)); end != nil {
			answer(edits, errors.Join(err, end))
			return
		}
	}
}

// freshen reads a tenant's object again if memory may be behind it. Nothing is written
// there while the old object rules: it would be lost when that is moved.
func (g *groups) freshen(ctx context.Context, t *tenant) error {
	if err := g.brokenForAll(); err != nil {
		return unreadableEdit(err)
	}
	if t.stale || g.brokenOf(t) != nil || t.entries == nil {
		o, err := g.records.writer.Groups(ctx, t.version.key)
		if err != nil {
			return err
		}
		before, was := t.entries, g.brokenOf(t)
		differs, err := g.read(t, o, g.records.living())
		if differs {
			g.follow(t, before)
		}
		if differs && was == nil { // another hand wrote it, perhaps with a mistake
			g.tell()
		}
		if err != nil {
			return err
		}
	}
	if err := g.brokenOf(t); err != nil {
		return unreadableEdit(err)
	}
	return nil
}

// follow takes over what was read of a tenant where before was known.
func (g *groups) follow(t *tenant, before *config.Entries) {
	keys := map[fleet.GroupKey]bool{}
	g.mu.Lock()
	if before != nil {
		for _, name := range before.Names() {
			key := fleet.GroupKey{Tenant: t.name, Name: name}
			delete(g.merged, key)
			delete(g.problems, key)
			keys[key] = true
		}
	}
	desired{g.static, g.merged, g.problems}.merge(t, g.brokenFor(t.name))
	for key := range g.merged {
		if key.Tenant == t.name {
			keys[key] = true
		}
	}
	g.mu.Unlock()
	g.altered()
	if len(keys) > 0 {
		g.changed(slices.Collect(maps.Keys(keys))...)
	}
}

// apply applies the edits to the draft.
func (r *round) apply(edits []*edit) {
	for _, e := range edits {
		r.asked = r.asked || e.asked
		if err := r.try(e); err != nil {
			r.refused[e] = err
		} else {
			r.sound = append(r.sound, e)
		}
	}
}

// try applies one edit.
func (r *round) try(e *edit) error {
	if e.change == nil {
		return nil
	}
	now := r.state(e.key)
	after, err := e.change(now)
	if err != nil {
		return err
	}
	names, err := r.draft.Take(r.tenant.name, now.entries, after)
	if err != nil {
		return refusedTooLarge(err)
	}
	for _, name := range names {
		key := fleet.GroupKey{Tenant: r.tenant.name, Name: name}
		var to resolved
		to.group, to.defined, to.problems = r.static.ResolveGroup(r.draft.Only(key.Tenant, name), key)
		r.merged[key] = to
	}
	return nil
}

// state is what an edit sees.
func (r *round) state(key fleet.GroupKey) state {
	if key.Name == "" {
		return state{entries: r.draft.All(key.Tenant)}
	}
	s := state{entries: r.draft.Only(key.Tenant, key.Name)}
	if to, ok := r.merged[key]; ok {
		s.group, s.defined = to.group, to.defined
	} else {
		s.group, s.defined = r.Group(key)
	}
	return s
}

// settle makes the draft durable, unless it is what this term has written last. No
// object is made for a tenant that is not in the config, unless one of its callers asks:
// then only a write keeps those of leaders before from landing.
func (r *round) settle(ctx context.Context) error {
	t := r.tenant
	idle := !r.asked && t.version.etag == "" && !r.static.HasTenant(t.name)
	if (t.version.proven || idle) && !r.draft.Changed() {
		return r.cfg.Fence.Check(ctx)
	}
	err := r.put(ctx, t, r.draft)
	if t.stale = err != nil; err != nil {
		return err
	}
	r.land()
	return nil
}

// land shows what is durable now.
func (r *round) land() {
	if len(r.merged) == 0 {
		return
	}
	keys := make([]fleet.GroupKey, 0, len(r.merged))
	r.mu.Lock()
	for key, to := range r.merged {
		keys = append(keys, key)
		delete(r.groups.merged, key)
		delete(r.problems, key)
		if to.defined {
			r.groups.merged[key] = to.group
		}
		if len(to.problems) > 0 {
			r.problems[key] = to.problems
		}
	}
	r.mu.Unlock()
	r.altered(keys...)
}

// answer tells all callers what became of their edits.
func (r *round) answer(edits []*edit, err error) {
	var asked []fleet.GroupKey
	for _, e := range r.sound {
		if e.asked && err == nil {
			asked = append(asked, e.key)
		}
	}
	if len(asked) > 0 {
		r.changed(asked...)
	}
	for _, e := range edits {
		if refused := r.refused[e]; refused != nil && err == nil {
			e.done <- refused
		} else {
			e.done <- err
		}
	}
}
