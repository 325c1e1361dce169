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
	// refused depend on an edit before them in the round: their answer is good
	// only once that is durable.
	refused map[*edit]error
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
		edits = r.apply(edits)
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
		differs, err := g.read(t, o)
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

// apply applies the edits to the draft, and returns those whose answer is to come.
func (r *round) apply(edits []*edit) (pending []*edit) {
	for _, e := range edits {
		switch dependent, err := r.try(e); {
		case err == nil:
			r.sound = append(r.sound, e)
			pending = append(pending, e)
		case dependent:
			r.refused[e] = err
			pending = append(pending, e)
		default:
			e.done <- err
		}
	}
	return pending
}

// try applies one edit, and says whether another one before it may have a part in the
// error.
func (r *round) try(e *edit) (dependent bool, err error) {
	if e.change == nil {
		return false, nil
	}
	now := r.state(e.key)
	if _, dependent = r.merged[e.key]; e.key.Name == "" {
		dependent = len(r.merged) > 0
	}
	after, err := e.change(now)
	if err != nil {
		return dependent, err
	}
	names, err := r.draft.Take(r.tenant.name, now.entries, after)
	if err != nil {
		return r.draft.Changed(), refusedTooLarge(err)
	}
	for _, name := range names {
		key := fleet.GroupKey{Tenant: r.tenant.name, Name: name}
		var to resolved
		to.group, to.defined, to.problems = r.static.ResolveGroup(r.draft.Only(key.Tenant, name), key)
		r.merged[key] = to
	}
	return false, nil
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

// settle makes the draft durable, if there is anything to be made so.
func (r *round) settle(ctx context.Context) error {
	if len(r.sound) == 0 {
		return nil
	}
	t := r.tenant
	nobodys := t.version.etag == "" && !r.static.HasTenant(t.name)
	if (t.version.proven || nobodys) && !r.draft.Changed() {
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
	var kicked []fleet.GroupKey
	for _, e := range r.sound {
		if e.kick && err == nil {
			kicked = append(kicked, e.key)
		}
	}
	if len(kicked) > 0 {
		r.changed(kicked...)
	}
	for _, e := range edits {
		if refused := r.refused[e]; refused != nil && err == nil {
			e.done <- refused
		} else {
			e.done <- err
		}
	}
}
