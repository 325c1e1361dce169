// Package groups keeps the desired groups of a shard: the static config with the groups' records
// merged over it. It edits the records, holds groups whose records went missing, and carries
// records over to the next static config.
package groups

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/writes"
)

// Config configures groups. All fields but Past and First are required.
type Config struct {
	Records writes.Records
	Fence   Fence
	Static  *config.Shard // that the term begins with
	Past    *config.Shard // the last accepted config, if the term begins with another; nil: there is none
	First   bool          // no config that was accepted before can be read
	Checks  func(*config.Shard) config.Checks
	// Counted reports whether all machines are known, and their records can be read.
	Counted func() bool
	// Before returns the config that was accepted before the present one; nil if it is not known.
	Before   func() *config.Shard
	Problems *problems.Set
	// Changed is called when the given groups have to be reconciled; no key means all.
	Changed func(...fleet.GroupKey)
	// Altered is called when the desired state of the given groups changed; no key means all.
	Altered func(...fleet.GroupKey)
	// Doubt is called when the stored version of a record is not known for sure.
	Doubt   func()
	Now     func() time.Time
	Uniform func() float64 // draws from [0, 1)
	Logger  *slog.Logger
}

// Fence is the term: *election.Term.
type Fence interface {
	Epoch() uint64
	RiseAbove(epoch uint64) // ends the term: something of a later epoch was found
}

// Groups are the desired groups: the static config with the groups' records merged over it.
// Reads see only what is durable. Edits of one group are serialized, and durable before reads
// see them; edits of different groups run concurrently, except while a config is being
// accepted. Safe for concurrent use.
type Groups struct {
	cfg     Config
	records writes.Records

	// turns is a reader-writer lock: an edit holds one turn, an exclusive operation all of them.
	turns *semaphore.Weighted
	late  *late

	mu     sync.RWMutex
	static *config.Shard // changes only while all turns are held
	taking bool          // set during the takeover: afterwards a group may have surplus instances for a while
	kept   map[fleet.GroupKey]keptRecord
	// atTakeover is Traces.Found at the takeover.
	atTakeover map[fleet.GroupKey]uint64
	// lastPruned is the highest revision of a record that was pruned.
	lastPruned uint64
	tenants    map[string]*tenantGroups
	reserved   map[fleet.GroupKey]*config.GroupUsage // by running edits, of their tenants' quotas
	merged     map[fleet.GroupKey]fleet.Group
	problems   map[fleet.GroupKey]config.Problems
}

var _ operators.Groups = (*Groups)(nil)

// Upsert implements operators.Groups.
func (g *Groups) Upsert(ctx context.Context, key fleet.GroupKey, c config.Change, ifETag *string) (managedBefore string, err error) {
	change := func(now groupNow) (config.GroupRecord, error) {
		if err := now.matches(key, ifETag); err != nil {
			return config.GroupRecord{}, err
		}
		managedBefore = c.EndsManagement(now.record)
		return g.static.ChangeGroup(key, now.record, c, g.cfg.Checks(g.static))
	}
	err = editError(g.edit(ctx, edit{key: key, asked: true, replaces: c.Template != nil, change: change}))
	return managedBefore, err
}

// Delete implements operators.Groups.
func (g *Groups) Delete(ctx context.Context, key fleet.GroupKey, by config.By) error {
	err := g.edit(ctx, edit{key: key, asked: true, replaces: true, change: func(now groupNow) (config.GroupRecord, error) {
		if !now.defined && g.records.Lives(key) { // its record is missing, and this call decides its fate
			return now.record.Bury(), nil
		}
		return g.static.RemoveGroup(key, now.record, by)
	}})
	if errors.Is(err, config.ErrRestricted) {
		return rpc.Precondition.Errorf("group %s is set by static config: remove it there, or scale it to 0", key)
	}
	return editError(err)
}

// Reset implements operators.Groups: it drops a group's overrides of the static config, and
// releases a held group.
func (g *Groups) Reset(ctx context.Context, key fleet.GroupKey, by config.By) error {
	return editError(g.edit(ctx, edit{key: key, asked: true, replaces: true, change: func(now groupNow) (config.GroupRecord, error) {
		if !now.defined && g.records.Lives(key) {
			return config.GroupRecord{}, fmt.Errorf("reset group %s: %w", key, config.ErrUnknownGroup)
		}
		return g.static.ResetGroup(key, now.record, by, g.cfg.Now())
	}}))
}

// Forget implements reconcile.Groups: it replaces a group's record by a tombstone, unless the
// group was recreated in the meantime.
func (g *Groups) Forget(ctx context.Context, key fleet.GroupKey) error {
	return g.edit(ctx, edit{key: key, change: func(now groupNow) (config.GroupRecord, error) {
		if r := now.record; !r.Exists() || !r.Removed && !r.Undefined || g.records.Lives(key) {
			return now.record, nil
		}
		return now.record.Forget(g.cfg.Now()), nil
	}})
}

// ClearLeaving implements reconcile.Groups: it removes IDs of instances that are gone from a
// group's leaving list.
func (g *Groups) ClearLeaving(ctx context.Context, key fleet.GroupKey, ids []fleet.InstanceID) error {
	return g.edit(ctx, edit{key: key, change: func(now groupNow) (config.GroupRecord, error) { return now.record.ClearLeaving(ids), nil }})
}

// editError maps edit errors to rpc kinds.
func editError(err error) error {
	var problems config.Problems
	var managed *config.ManagedError
	switch {
	case err == nil, errors.As(err, new(rpc.Kind)):
		return err
	case errors.As(err, &managed):
		return &rpc.PreconditionError{
			Message:  "nothing was changed: change it where it is managed, or by force",
			Failures: []rpc.Failure{{Type: rpc.GroupManaged, Subject: managed.Key.String(), Description: "managed by " + managed.Manager}},
		}
	case errors.Is(err, config.ErrNoGroup):
		return rpc.NotFound.Errorf("%w", err)
	case errors.Is(err, config.ErrExists):
		return rpc.Exists.Errorf("%w", err)
	case errors.Is(err, config.ErrRestricted), errors.Is(err, config.ErrRemoved), errors.Is(err, config.ErrUnknownGroup),
		errors.Is(err, config.ErrNoRollout), errors.Is(err, config.ErrNoDefinition):
		return rpc.Precondition.Errorf("%w", err)
	case errors.As(err, new(*config.QuotaError)):
		return rpc.Exhausted.Errorf("%w", err)
	case errors.As(err, &problems):
		return &rpc.ViolationsError{Message: "invalid group", Violations: writes.Violations(problems)}
	default:
		return writes.Kind(err)
	}
}

// Group returns a group's desired state. It returns false for a group that nothing defines; its
// remaining instances are to be left alone, because a group that is being removed keeps a record
// that says so until it is empty.
func (g *Groups) Group(key fleet.GroupKey) (fleet.Group, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.group(key)
}

// group is Group for a caller that holds mu.
func (g *Groups) group(key fleet.GroupKey) (fleet.Group, bool) {
	if group, ok := g.merged[key]; ok {
		return group, true
	}
	return g.static.Orphan(key), false
}

// Keys implements reconcile.Groups: it returns the defined groups, sorted.
func (g *Groups) Keys() []fleet.GroupKey {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(g.merged), fleet.GroupKey.Compare)
}

// All implements operators.Groups.
func (g *Groups) All() []fleet.GroupKey {
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

// InstanceTypes lists the instance types of all groups.
func (g *Groups) InstanceTypes() (names []string) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, group := range g.merged {
		if group.InstanceType != "" {
			names = append(names, group.InstanceType)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Gone reports whether a group is neither desired nor has instances.
func (g *Groups) Gone(key fleet.GroupKey) bool {
	_, desired := g.Group(key)
	return !desired && len(g.records.Group(key)) == 0
}

// Settings implements reconcile.Groups.
func (g *Groups) Settings() plan.Settings {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return settings(g.static)
}

func settings(static *config.Shard) plan.Settings {
	c := static.Server
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
