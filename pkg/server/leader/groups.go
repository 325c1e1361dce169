package leader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// groups are the desired groups: the static config with the dynamic groups merged
// over it. Reads see what is durable. Edits of one tenant's groups are durable, one
// write after another, before they are seen; those of several tenants wait for each
// other no more than for a config that is being accepted. Safe for concurrent use.
type groups struct {
	cfg     Config
	term    context.Context //nolint:containedctx // in which edits that wait for others are written
	records records
	report  func(fleet.Problem)

	// turns are held, one by each write of a tenant's groups, and all by what goes
	// with no write beside it.
	turns *semaphore.Weighted
	old   versioned // of the object that all tenants' groups were in; belongs to who holds all turns
	// floor is the least rev of a tenant's first object, so that no revision of a group
	// comes twice.
	floor atomic.Uint64

	// changed is called when some groups, or any if none is named, are to be acted on.
	changed func(...fleet.GroupKey)
	// altered is called when what is desired has changed, of some groups or of any.
	altered func(...fleet.GroupKey)
	// doubt is called when an edit leaves it unknown what the store holds.
	doubt func()

	mu       sync.RWMutex
	static   *config.Shard // changes only while all turns are held
	broken   error         // why the groups in the store can't be read; nothing is changed while it lasts
	tenants  map[string]*tenant
	merged   map[fleet.GroupKey]fleet.Group
	problems map[fleet.GroupKey]config.Problems
}

var (
	_ operators.Groups = (*groups)(nil)
	_ reconcile.Groups = (*groups)(nil)
)

// Upsert implements operators.Groups.
func (g *groups) Upsert(ctx context.Context, key fleet.GroupKey, c config.Change, ifETag *string) error {
	return editError(g.edit(ctx, &edit{key: key, asked: true, change: func(now state) (config.Dynamic, error) {
		if err := now.matches(key, ifETag); err != nil {
			return config.Dynamic{}, err
		}
		return g.static.Upsert(now.entries, key, c, g.cfg.Static.Checks(g.static))
	}}))
}

// Delete implements operators.Groups.
func (g *groups) Delete(ctx context.Context, key fleet.GroupKey) error {
	err := g.edit(ctx, &edit{key: key, asked: true, change: func(now state) (config.Dynamic, error) {
		if !now.defined && g.records.lives(key) { // its record is missing, and this says what is meant
			return now.entries.Bury(key), nil
		}
		return g.static.Remove(now.entries, key)
	}})
	if errors.Is(err, config.ErrRestricted) {
		return rpc.Precondition.Errorf("group %s is set by static config: remove it there, or scale it to 0", key)
	}
	return editError(err)
}

// Reset implements operators.Groups: it drops what overrides a group of the static config,
// and ends that a group is held.
func (g *groups) Reset(ctx context.Context, key fleet.GroupKey) error {
	return editError(g.edit(ctx, &edit{key: key, asked: true, change: func(now state) (config.Dynamic, error) {
		if !now.defined && g.records.lives(key) {
			return config.Dynamic{}, fmt.Errorf("reset group %s: %w", key, config.ErrUnknownGroup)
		}
		return g.static.Reset(now.entries, key)
	}}))
}

// Forget implements reconcile.Groups: it removes a group's dynamic entry.
func (g *groups) Forget(ctx context.Context, key fleet.GroupKey) error {
	return g.edit(ctx, &edit{key: key, change: func(now state) (config.Dynamic, error) { return now.entries.Forget(key), nil }})
}

// Settle implements reconcile.Groups: it takes ids that are gone out of a
// group's leaving list.
func (g *groups) Settle(ctx context.Context, key fleet.GroupKey, ids []fleet.InstanceID) error {
	return g.edit(ctx, &edit{key: key, change: func(now state) (config.Dynamic, error) { return now.entries.Settle(key, ids), nil }})
}

// editError turns what a change of a group may run into into a kind.
func editError(err error) error {
	var problems config.Problems
	switch {
	case err == nil, errors.As(err, new(rpc.Kind)):
		return err
	case errors.Is(err, config.ErrNoGroup):
		return rpc.NotFound.Errorf("%w", err)
	case errors.Is(err, config.ErrExists):
		return rpc.Exists.Errorf("%w", err)
	case errors.Is(err, config.ErrRestricted), errors.Is(err, config.ErrRemoved), errors.Is(err, config.ErrUnknownGroup):
		return rpc.Precondition.Errorf("%w", err)
	case errors.As(err, &problems):
		return &rpc.ViolationsError{Message: "invalid group", Violations: violations(problems)}
	default:
		return kind(err)
	}
}

// Group returns a group as it is desired now. One that nothing defines any more
// comes with false, and what it may have left is to be left as it is: a group that is to
// go has an entry that says so until it is empty.
func (g *groups) Group(key fleet.GroupKey) (fleet.Group, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	group, ok := g.merged[key]
	if !ok {
		group = g.static.Orphan(key)
		if err := g.brokenFor(key.Tenant); err != nil {
			group.Disabled, group.RecordMissing = err.Error(), ""
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
		Settle: time.Duration(c.CreateBackoff.Settle),
	}
}
