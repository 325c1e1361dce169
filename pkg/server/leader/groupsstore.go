package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// ReasonGroups is the reason of problems with the definitions of dynamic groups.
const ReasonGroups = "GroupsInvalid"

// Dynamic groups are read again once a lease after the takeover, and written if this
// term has not, so that no write of a leader before can land any more; and then they
// are read every hour; every minute while they can't be.
const (
	groupsInterval      = time.Hour
	groupsRetryInterval = time.Minute
)

// allTurns is more than there are tenants.
const allTurns = 1 << 30

// errUnreadable is in every error that says that dynamic groups can't be read.
var errUnreadable = errors.New("can't be read, mend or remove them")

// tenant is what a term knows of the dynamic groups of one tenant.
type tenant struct {
	name string

	// These belong to who holds a turn for the tenant, or all turns.
	version versioned
	stale   bool            // what is in memory may be behind the store
	entries *config.Entries // nil: none that could be read yet

	// These are guarded by groups.mu.
	broken  error           // why the object can't be read
	foreign config.Problems // fields beside the groups that mean nothing here

	queue editQueue
}

// newGroups reads the dynamic groups and merges them.
func (t *Term) newGroups() (*groups, error) {
	g := &groups{
		cfg: t.cfg, term: t.ctx, records: t.records, static: t.config.shard(),
		old: newVersioned(t.cfg, t.records.writer.GroupsKey()), turns: semaphore.NewWeighted(allTurns), tenants: map[string]*tenant{},
		changed: func(...fleet.GroupKey) {}, altered: func(...fleet.GroupKey) {}, doubt: t.doubts.ask, report: t.problems.report,
	}
	_, err := g.load(t.ctx)
	return g, err
}

// of returns what is known of a tenant.
func (g *groups) of(name string) *tenant {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.tenants[name]
	if t == nil {
		t = &tenant{name: name, version: newVersioned(g.cfg, g.records.writer.TenantKey(name))}
		t.version.rev = g.floor.Load()
		g.tenants[name] = t
	}
	return t
}

// all are the tenants that a config has, or an object tells of, that have instances, and
// those that were asked for.
func (g *groups) all(static *config.Shard) []*tenant {
	names := map[string]bool{fleet.DefaultTenant: true}
	for name := range static.Tenants {
		names[name] = true
	}
	for name := range static.Groups {
		names[name] = true
	}
	g.mu.RLock()
	for name := range g.tenants {
		names[name] = true
	}
	g.mu.RUnlock()
	for name := range g.records.living() {
		names[name] = true
	}
	var all []*tenant
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all = append(all, g.of(name))
	}
	return all
}

// dynamic are the entries of all tenants that a config has, or that are known otherwise.
// A tenant whose object can't be read counts as having none, and unread holds its name.
// The caller holds all turns, or is the only one yet.
func (g *groups) dynamic(static *config.Shard) (entries config.Dynamic, unread map[string]bool) {
	entries, unread = config.Dynamic{Groups: map[string]map[string]config.Entry{}}, map[string]bool{}
	for _, t := range g.all(static) {
		if t.entries != nil {
			maps.Copy(entries.Groups, t.entries.Dynamic(t.name).Groups)
			continue
		}
		unread[t.name] = true
	}
	return entries, unread
}

// load makes memory what the store holds, and reports whether that differs. Its caller
// holds all turns, or is the only one yet.
func (g *groups) load(ctx context.Context) (differs bool, err error) {
	defer func() {
		if differs {
			g.altered()
		}
	}()
	before := g.brokenForAll()
	moved, err := mover{g}.moveApart(ctx)
	if err != nil {
		return false, err
	}
	differs = moved || g.merged == nil || (before == nil) != (g.brokenForAll() == nil)
	if before != nil && g.brokenForAll() == nil {
		defer g.doubt() // all were left out so far
	}
	defer func() {
		if differs {
			g.become(g.merge(g.static))
		}
	}()
	if g.brokenForAll() != nil {
		return differs, nil
	}
	all := []string{}
	for _, t := range g.all(g.static) {
		all = append(all, t.name)
	}
	found, err := g.records.writer.Tenants(ctx, all...)
	if err != nil {
		return differs, err
	}
	for name := range found {
		g.of(name)
	}
	living := g.records.living()
	for _, t := range g.all(g.static) {
		other, err := g.read(t, found[t.name], living)
		if differs = differs || other; err != nil {
			return differs, err
		}
	}
	return differs, nil
}

// read takes over a tenant's object as the store has it, judged by what lives.
func (g *groups) read(t *tenant, o ledger.GroupsObject, living living) (differs bool, err error) {
	known := t.entries != nil && g.brokenOf(t) == nil
	if known && o.ETag == t.version.etag {
		t.stale = false
		return false, nil
	}
	if o.ETag == "" {
		none, _ := config.Dynamic{Rev: g.floor.Load()}.OfTenant("") // what is empty can be encoded
		held, rev, err := (holding{g, g.records}).hold(t, none, o, living)
		if err != nil {
			return false, err
		}
		if len(held.Names()) > 0 {
			g.doubt() // until it is durable
		}
		g.breaks(t, nil)
		t.entries, t.stale = held, false
		return true, t.version.saw(config.Header{Rev: rev}, "")
	}
	entries, err := config.ParseEntries(o.Body)
	if err == nil {
		err = readable(t.version.key, entries.Header(), t.version.epoch)
	} else {
		err = fmt.Errorf("%s: %w", t.version.key, err)
	}
	if err != nil {
		g.breaks(t, fmt.Errorf("the dynamic groups of tenant %s %w: %w", t.name, errUnreadable, err))
		return true, t.version.saw(config.Header{}, o.ETag)
	}
	if err := t.version.saw(entries.Header(), o.ETag); err != nil {
		return false, err
	}
	held, rev, err := (holding{g, g.records}).hold(t, entries, o, living)
	if err != nil {
		return false, err
	}
	if len(held.Differing(entries)) > 0 {
		g.doubt() // until it is durable
	}
	t.version.rev = max(t.version.rev, rev)
	if g.brokenOf(t) != nil {
		defer g.doubt() // it was left out so far
	}
	g.breaks(t, nil, entries.Foreign()...)
	t.entries, t.stale = held, false
	return true, nil
}

// breaks notes whether a tenant's object can be read, and what in it means nothing here.
func (g *groups) breaks(t *tenant, err error, foreign ...config.Problem) {
	for n, p := range foreign {
		foreign[n] = config.Problem{Path: t.version.key, Message: p.String()}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	t.broken, t.foreign = err, foreign
}

func (g *groups) brokenOf(t *tenant) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return t.broken
}

func (g *groups) brokenForAll() error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.broken
}

// brokenFor is why a tenant's groups in the store can't be read. The caller holds the
// lock.
func (g *groups) brokenFor(name string) error {
	if t := g.tenants[name]; g.broken == nil && t != nil {
		return t.broken
	}
	return g.broken
}

// desired are the groups that a static config and the dynamic groups make together.
type desired struct {
	static   *config.Shard
	groups   map[fleet.GroupKey]fleet.Group
	problems map[fleet.GroupKey]config.Problems
}

// merge merges all dynamic groups over a static config. The caller holds all turns.
func (g *groups) merge(static *config.Shard) desired {
	all := g.all(static)
	g.mu.RLock()
	defer g.mu.RUnlock()
	d := desired{static, map[fleet.GroupKey]fleet.Group{}, map[fleet.GroupKey]config.Problems{}}
	for _, t := range all {
		d.merge(t, g.brokenFor(t.name))
	}
	return d
}

// become takes over what merge returned.
func (g *groups) become(d desired) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.static, g.merged, g.problems = d.static, d.groups, d.problems
}

// merge does so for one tenant. What was read before goes on to count when it
// can't be read any more; a server that has read nothing yet knows neither sizes nor
// which groups there are, so it leaves all of them as they are.
func (d desired) merge(t *tenant, broken error) {
	dynamic := config.Dynamic{}
	if t.entries != nil {
		dynamic = t.entries.Dynamic(t.name)
	}
	for _, key := range keysOf(d.static, dynamic, t.name) {
		d.mergeGroup(dynamic, key)
		if group, ok := d.groups[key]; ok && t.entries == nil && broken != nil {
			group.Disabled = broken.Error()
			d.groups[key] = group
		}
	}
}

func (d desired) mergeGroup(dynamic config.Dynamic, key fleet.GroupKey) {
	delete(d.groups, key)
	delete(d.problems, key)
	group, ok, problems := d.static.ResolveGroup(dynamic, key)
	if ok {
		d.groups[key] = group
	}
	if len(problems) > 0 {
		d.problems[key] = problems
	}
}

// keysOf are the groups of a tenant that either names.
func keysOf(static *config.Shard, d config.Dynamic, tenant string) (keys []fleet.GroupKey) {
	names := map[string]bool{}
	for name := range static.Groups[tenant] {
		names[name] = true
	}
	for name := range d.Groups[tenant] {
		names[name] = true
	}
	for name := range names {
		keys = append(keys, fleet.GroupKey{Tenant: tenant, Name: name})
	}
	return keys
}

// unreadable says why groups in the store can't be read; nil when all can.
func (g *groups) unreadable() error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.broken != nil {
		return g.broken
	}
	for _, name := range slices.Sorted(maps.Keys(g.tenants)) {
		if err := g.tenants[name].broken; err != nil {
			return err
		}
	}
	return nil
}

// invalid lists what is wrong with dynamic groups.
func (g *groups) invalid() (all config.Problems) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.broken != nil {
		return config.Problems{{Message: g.broken.Error()}}
	}
	for _, problems := range g.problems {
		all = append(all, problems...)
	}
	for _, t := range g.tenants {
		if t.broken != nil {
			all = append(all, config.Problem{Message: t.broken.Error()})
		}
		all = append(all, t.foreign...)
	}
	slices.SortFunc(all, func(a, b config.Problem) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	return all
}

// wrong reports whether anything is wrong with one group's entry.
func (g *groups) wrong(key fleet.GroupKey) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.problems[key]) > 0
}

// tell reports what is wrong with the definitions of dynamic groups, and which of them
// are missing.
func (g *groups) tell() {
	for _, p := range (holding{g, g.records}).problems(g.cfg.Now(), func(fleet.GroupKey) bool { return true }) {
		g.report(p)
	}
	for _, p := range g.invalid() {
		g.report(fleet.Problem{At: g.cfg.Now(), Reason: ReasonGroups, Message: p.String(), Group: groupIn(p.Path)})
	}
}
