package leader

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// groups are the desired groups: the static config with the dynamic groups merged
// over it. Reads see one consistent snapshot; edits are durable, one after another,
// before they are seen. Safe for concurrent use.
type groups struct {
	cfg     Config
	records records
	report  func(fleet.Problem)

	edits   chan struct{} // holds one while an edit is under way
	version versioned     // of the groups in the store; belongs to the edit under way
	stale   bool          // what is in memory may be behind the store; the same

	// changed is called when some groups, or any if none is named, are to be acted on.
	changed func(...fleet.GroupKey)
	// altered is called when what is desired has changed.
	altered func()
	// doubt is called when an edit leaves it unknown what the store holds.
	doubt func()

	mu       sync.RWMutex
	static   *config.Shard // changes only within an edit
	broken   error         // why the groups in the store can't be read; nothing is changed while it lasts
	dynamic  config.Dynamic
	merged   map[fleet.GroupKey]fleet.Group
	problems config.Problems
}

var (
	_ operators.Groups = (*groups)(nil)
	_ reconcile.Groups = (*groups)(nil)
)

// Upsert implements operators.Groups.
func (g *groups) Upsert(ctx context.Context, key fleet.GroupKey, c config.Change, ifETag *string) error {
	err := g.edit(ctx, func(d config.Dynamic) (config.Dynamic, error) {
		if err := g.matches(key, ifETag); err != nil {
			return config.Dynamic{}, err
		}
		return g.static.Upsert(d, key, c, g.cfg.Static.Checks(g.static))
	})
	if err != nil {
		return editError(err)
	}
	g.changed(key)
	return nil
}

// Delete implements operators.Groups.
func (g *groups) Delete(ctx context.Context, key fleet.GroupKey) error {
	err := g.edit(ctx, func(d config.Dynamic) (config.Dynamic, error) { return g.static.Remove(d, key) })
	switch {
	case errors.Is(err, config.ErrRestricted):
		return rpc.Precondition.Errorf("group %s is set by static config: remove it there, or scale it to 0", key)
	case err != nil:
		return editError(err)
	}
	g.changed(key)
	return nil
}

// Forget implements reconcile.Groups: it removes a group's dynamic entry.
func (g *groups) Forget(ctx context.Context, key fleet.GroupKey) error {
	return g.edit(ctx, func(d config.Dynamic) (config.Dynamic, error) { return d.Forget(key), nil })
}

// Settle implements reconcile.Groups: it takes ids that are gone out of a
// group's leaving list.
func (g *groups) Settle(ctx context.Context, key fleet.GroupKey, ids []fleet.InstanceID) error {
	return g.edit(ctx, func(d config.Dynamic) (config.Dynamic, error) { return d.Settle(key, ids), nil })
}

// edit changes the dynamic groups, durably, while the term lasts.
func (g *groups) edit(ctx context.Context, change func(config.Dynamic) (config.Dynamic, error)) error {
	return g.records.writes.do(ctx, func(ctx context.Context) error {
		release, err := g.begin(ctx)
		if err != nil {
			return err
		}
		defer release()
		return g.apply(ctx, g.cfg.Fence.Check, change)
	})
}

// editError turns what a change of a group may run into into a kind.
func editError(err error) error {
	var problems config.Problems
	switch {
	case errors.As(err, new(rpc.Kind)):
		return err
	case errors.Is(err, config.ErrNoGroup):
		return rpc.NotFound.Errorf("%w", err)
	case errors.Is(err, config.ErrRestricted), errors.Is(err, config.ErrRemoved):
		return rpc.Precondition.Errorf("%w", err)
	case errors.As(err, &problems):
		return &rpc.ViolationsError{Message: "invalid group", Violations: violations(problems)}
	default:
		return kind(err)
	}
}

// Group returns a group as it is desired now. One that nothing defines any more
// is to be emptied and forgotten.
func (g *groups) Group(key fleet.GroupKey) (fleet.Group, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	group, ok := g.merged[key]
	if !ok {
		group = g.static.Orphan(key)
		if g.broken != nil {
			group.Disabled = g.broken.Error()
		}
	}
	return group, ok
}

// Keys implements reconcile.Groups: the groups that are defined, sorted.
func (g *groups) Keys() []fleet.GroupKey {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(g.merged), fleet.GroupKey.Compare)
}

// All implements operators.Groups.
func (g *groups) All() []fleet.GroupKey {
	keys := map[fleet.GroupKey]bool{}
	for _, k := range g.Keys() {
		keys[k] = true
	}
	for _, i := range g.records.Instances() {
		if i.Phase != fleet.Deleted {
			keys[i.GroupKey()] = true
		}
	}
	return slices.SortedFunc(maps.Keys(keys), fleet.GroupKey.Compare)
}

// gone reports whether a group is neither desired nor has instances any more.
func (g *groups) gone(key fleet.GroupKey) bool {
	_, desired := g.Group(key)
	return !desired && len(g.records.Group(key)) == 0
}

// matches refuses the change of a group that is not as its caller believes. It is
// part of an edit, so what it finds is what the edit changes.
func (g *groups) matches(key fleet.GroupKey, etag *string) error {
	group, exists := g.Group(key)
	now := operators.ETag(group)
	switch {
	case etag == nil, exists && *etag == now, !exists && *etag == "":
		return nil
	case !exists:
		return rpc.Conflict.Errorf("if_etag: %.80q, but there is no group %s: read again", *etag, key.Name)
	case *etag == "":
		return rpc.Conflict.Errorf("if_etag: empty, but there is a group %s, with etag %q: read again", key.Name, now)
	default:
		return rpc.Conflict.Errorf("if_etag: %.80q, but group %s has etag %q: read again", *etag, key.Name, now)
	}
}

// Settings implements reconcile.Groups.
func (g *groups) Settings() plan.Settings {
	g.mu.RLock()
	defer g.mu.RUnlock()
	c := g.static.Server
	return plan.Settings{
		ReportInterval: time.Duration(c.Health.ReportInterval), MissedReports: c.Health.MissedReports,
		ShutdownGrace:       time.Duration(c.Health.ShutdownGrace),
		RegistrationTimeout: time.Duration(c.GarbageCollection.RegistrationTimeout),
		DeletedRetention:    time.Duration(c.GarbageCollection.DeletedRecordRetention),
		EligibleAge:         time.Duration(c.Expiry.EligibleAge), ForcedAge: time.Duration(c.Expiry.ForcedAge),
		OnDemandAge: time.Duration(c.Expiry.OnDemandAge), CreateTimeout: time.Duration(c.OnDemand.CreateTimeout),
	}
}
