package groups

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/writes"
)

// ReasonInvalid is the reason of problems with the records of groups.
const ReasonInvalid = "GroupsInvalid"

// The records of groups are listed at least every hour; every minute while one can't be read.
const (
	groupsInterval      = time.Hour
	groupsRetryInterval = time.Minute
	groupsAgain         = time.Second // the first back-off after a record could not be read
)

// allTurns exceeds the number of concurrent edits.
const allTurns = 1 << 30

// keptRecord is a term's state of a group's record.
type keptRecord struct {
	record config.GroupRecord // the effective record
	etag   object.ETag        // of the object that was judged
	err    error              // why the object can't be read
	held   bool               // the store lacks record
	judged bool               // false: only readByKey was set so far
	shown  uint64             // the highest revision of a live instance when it was judged
	found  uint64             // living.found when it was judged
	usage  config.GroupUsage
	read   readByKey
}

// notStored reports whether the store lacks the effective record.
func (k keptRecord) notStored() bool { return k.held }

// unreadable reports whether the stored record can't be read.
func (k keptRecord) unreadable() bool { return k.err != nil }

// readByKey says that a record was read by its key in this term, not just listed.
type readByKey struct {
	done   bool
	traces ledger.Traces // as known then
}

// tenantGroups is a term's state of a tenant's groups. usage and tombstones are guarded by
// groups.mu.
type tenantGroups struct {
	slots      *semaphore.Weighted
	usage      config.GroupUsage // of all its groups, including running edits
	tombstones int
}

// New judges the records that the ledger has loaded, and merges them.
func New(ctx context.Context, cfg Config) (*Groups, error) {
	g := empty(cfg)
	g.taking, g.atTakeover = true, foundIn(cfg.Records)
	if err := g.readUnlisted(ctx); err != nil {
		return nil, err
	}
	if _, err := g.judgeAll(); err != nil {
		return nil, err
	}
	g.taking = false
	return g, nil
}

// foundIn returns how often an instance of an earlier term was found, by group.
func foundIn(r writes.Records) map[fleet.GroupKey]uint64 {
	all := map[fleet.GroupKey]uint64{}
	for key := range groupsOf(r) {
		all[key] = r.Traces(key).Found
	}
	return all
}

// groupsOf returns the groups of all instances, deleted ones included.
func groupsOf(r writes.Records) map[fleet.GroupKey]bool {
	keys := map[fleet.GroupKey]bool{}
	for _, i := range r.Instances() {
		keys[i.GroupKey()] = true
	}
	return keys
}

// empty returns groups that know no record.
func empty(cfg Config) *Groups {
	return &Groups{
		cfg: cfg, records: cfg.Records, static: cfg.Static, turns: semaphore.NewWeighted(allTurns),
		kept: map[fleet.GroupKey]keptRecord{}, tenants: map[string]*tenantGroups{}, late: newLate(),
		reserved: map[fleet.GroupKey]*config.GroupUsage{},
	}
}

// of returns the state of a tenant.
func (g *Groups) of(name string) *tenantGroups {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tenant(name)
}

// tenant is of for a caller that holds mu.
func (g *Groups) tenant(name string) *tenantGroups {
	t := g.tenants[name]
	if t == nil {
		t = &tenantGroups{slots: semaphore.NewWeighted(maxEdits)}
		g.tenants[name] = t
	}
	return t
}

// tombstonesOf counts the tombstones of a tenant.
func tombstonesOf(g *Groups, tenant string) int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.tenants[tenant].tombstones
}

// judgeAll judges and merges the records that changed in the ledger, and returns their keys. A
// record of a later epoch ends the term.
func (g *Groups) judgeAll() (differ []fleet.GroupKey, err error) {
	keys := groupsOf(g.records)
	g.mu.Lock()
	defer g.mu.Unlock()
	states := g.records.GroupStates()
	for _, key := range slices.Concat(slices.Collect(maps.Keys(g.kept)), slices.Collect(maps.Keys(keys))) {
		if _, known := states[key]; !known {
			states[key] = ledger.GroupState{}
		}
	}
	for key, state := range states {
		if state.Record.Epoch > g.cfg.Fence.Epoch() {
			g.cfg.Fence.RiseAbove(state.Record.Epoch)
			return differ, fmt.Errorf("the record of group %s was written in epoch %d, this is %d: %w",
				key, state.Record.Epoch, g.cfg.Fence.Epoch(), election.ErrNotLeader)
		}
		if g.judge(key, state, livingOf(g.records, key)) {
			g.merge(key)
			differ = append(differ, key)
		}
	}
	return differ, nil
}

// judge applies a record from the ledger, given the known record and the live instances. The
// caller holds mu, and merges the record if differs is true.
func (g *Groups) judge(key fleet.GroupKey, state ledger.GroupState, l living) (differs bool) {
	was := g.kept[key]
	// An instance was created by a later record, which was not known when this one was judged.
	shown := state.Err == nil && l.revision > max(was.record.StoredRevision(), was.shown)
	shown = shown || state.Err == nil && l.found != was.found
	switch {
	case was.judged && was.etag == state.ETag && (was.err == nil) == (state.Err == nil) && !shown:
		return false
	case !was.judged && state.ETag == "" && !state.Known.Stored() && !l.any:
		return false // keep nothing for a name that was only requested
	}
	k := g.judged(key, was, state, l)
	if k.held {
		g.cfg.Doubt() // until it is durable
	}
	g.setRecord(key, k)
	return true
}

// judged returns the record that judge applies.
func (g *Groups) judged(key fleet.GroupKey, was keptRecord, state ledger.GroupState, l living) keptRecord {
	k := keptRecord{etag: state.ETag, err: state.Err, read: was.read, judged: true, shown: l.revision, found: l.found}
	late := isLate(g, key, l.found) // the takeover would have known
	if late {
		l.managed -= l.made // the takeover would not
	}
	switch {
	case state.Err != nil && was.record.Exists(): // keep the last known record
		k.record = was.record
	case state.Err != nil:
		k.record = config.UnreadableGroup(config.Header{}, fmt.Errorf("its record %w: %w", ErrUnreadable, state.Err))
	default:
		h := config.History{
			Known: state.Known, Living: l.managed, Lives: l.any, Revision: l.revision, Since: revisionsSince(g),
			Acting: !g.taking && !late, Late: late, Accepted: g.cfg.Past,
		}
		if !h.Acting {
			h.Beyond = l.beyond(g, key, state.Record)
		}
		if was.record.Stored() && !was.record.Unreadable() {
			h.Known, h.Certain = was.record, true
		}
		k.record, k.held = g.static.HoldGroup(key, state.Record, h)
	}
	return k
}

// setRecord stores the state of a record. The caller holds mu.
func (g *Groups) setRecord(key fleet.GroupKey, k keptRecord) {
	g.unreserve(key)
	was, t := g.kept[key], g.tenant(key.Tenant)
	if !was.record.Stored() { // a static group counts even without a record
		was.usage = g.static.Usage(key, was.record)
	}
	k.usage = g.static.Usage(key, k.record)
	t.usage = t.usage.Plus(k.usage).Minus(was.usage)
	t.tombstones += tombstone(k.record) - tombstone(was.record)
	g.kept[key] = k
}

// tombstone returns 1 for a tombstone, else 0.
func tombstone(r config.GroupRecord) int {
	if r.Stored() && !r.Exists() {
		return 1
	}
	return 0
}

// follow applies the ledger's state of a group, and reports whether it differs.
func (g *Groups) follow(key fleet.GroupKey) (differs bool) {
	g.mu.Lock()
	state := g.records.GroupState(key)
	was := g.kept[key]
	differs = g.judge(key, state, livingOf(g.records, key))
	if !differs && state.Err == nil && was.held && state.Record.Same(was.record) {
		was.held = false
		g.kept[key] = was
	}
	if differs {
		g.merge(key)
	}
	g.mu.Unlock()
	if differs {
		g.cfg.Altered(key)
	}
	return differs
}

// Become merges all records over a static config. The caller holds the lock of edits.
func (g *Groups) Become(static *config.Shard) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.static = static
	g.merged, g.problems = map[fleet.GroupKey]fleet.Group{}, map[fleet.GroupKey]config.Problems{}
	for _, t := range g.tenants {
		t.usage = config.GroupUsage{}
	}
	count := func(key fleet.GroupKey, u config.GroupUsage) {
		t := g.tenant(key.Tenant)
		t.usage = t.usage.Plus(u)
	}
	for key, k := range g.kept {
		k.usage = static.Usage(key, k.record)
		g.kept[key] = k
		count(key, k.usage)
		g.merge(key)
	}
	for _, key := range static.StaticGroups() {
		if _, known := g.kept[key]; !known {
			count(key, static.Usage(key, config.GroupRecord{}))
			g.merge(key)
		}
	}
}

// merge merges one record. The caller holds mu.
func (g *Groups) merge(key fleet.GroupKey) {
	delete(g.merged, key)
	delete(g.problems, key)
	k := g.kept[key]
	group, ok, problems := g.static.ResolveGroup(key, k.record)
	if ok {
		g.merged[key] = group
	}
	if k.err != nil && !k.record.Unreadable() {
		problems = append(problems, config.Problem{
			Path: "groups." + key.Tenant + "." + key.Name, Message: "the last known definition stays in effect: " + k.err.Error(),
		})
	}
	if len(problems) > 0 {
		g.problems[key] = problems
	}
}

// Records returns the effective records.
func (g *Groups) Records() config.GroupRecords {
	g.mu.RLock()
	defer g.mu.RUnlock()
	all := make(config.GroupRecords, len(g.kept))
	for key, k := range g.kept {
		all[key] = k.record
	}
	return all
}

// which returns the groups whose records have a property.
func (g *Groups) which(has func(keptRecord) bool) (keys []fleet.GroupKey) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for key, k := range g.kept {
		if has(k) {
			keys = append(keys, key)
		}
	}
	return keys
}

// wrong reports whether one group's record has problems.
func (g *Groups) wrong(key fleet.GroupKey) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.problems[key]) > 0
}
