// Package leader is one term of leadership: what a server does and offers only while it leads
// its shard. It takes over, maintains the shard's config and groups, and reconciles until the
// term ends.
package leader

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/paced"
	"github.com/nstance/nstance/pkg/server/delivery"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/groups"
	"github.com/nstance/nstance/pkg/server/history"
	"github.com/nstance/nstance/pkg/server/identities"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/ondemand"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
	"github.com/nstance/nstance/pkg/server/registry"
	"github.com/nstance/nstance/pkg/server/roster"
	"github.com/nstance/nstance/pkg/server/writes"
)

// Term is the state of one term of leadership. It ends with ctx. Safe for concurrent use: each
// part guards its own state.
type Term struct {
	cfg  Config
	ctx  context.Context //nolint:containedctx // all parts end with it
	stop context.CancelFunc
	vms  *paced.Listed // the first list
	// counted: the machines were known before the groups were judged.
	counted bool

	config   *running
	records  writes.Records
	keys     *identities.Keys
	known    *identities.Identities
	groups   *groups.Groups
	refresh  *refresher
	doubts   *doubts
	problems *problems.Set
	history  *history.History
	shown    shownProblems
	types    *instanceTypes
	builder  *builder
	loop     *reconcile.Loop
	files    *delivery.Delivery
	onDemand *ondemand.Service
	roster   *roster.Roster
	registry *registry.Registry
	watches  *operators.Watches
	// assembled: all parts exist. It is set before any of them runs.
	assembled atomic.Bool
	// transitions are those of the groups' conditions.
	transitions *operators.Transitions

	admission *admission
	clocks    *clocks
	rotations *rotations
}

// TakeOver reads everything that decisions depend on: config, records and groups. Meanwhile it
// lists the provider's VMs, for which the loop waits. If the error is nil, the caller has to run
// the term. Errors other than election.ErrNotLeader and ErrRestart may be transient.
func TakeOver(ctx context.Context, cfg Config) (*Term, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Static.epoch.Store(cfg.Fence.Epoch())
	ctx, stop := context.WithCancel(ctx)
	vms := paced.ListAhead(ctx, paced.Config{
		Provider: cfg.Provider, Listing: cfg.Listing,
		Timeout: func() time.Duration { return time.Duration(cfg.Boot.Server.RequestTimeout) },
	})
	var static Accepted
	var writer *ledger.Writer
	reads, within := errgroup.WithContext(ctx)
	reads.Go(func() (err error) { static, err = cfg.Static.ReadFor(within, cfg.Boot); return err })
	reads.Go(func() (err error) { writer, err = loadRecords(within, cfg); return err })
	if err := reads.Wait(); err != nil {
		stop()
		return nil, err
	}
	t := &Term{cfg: cfg, ctx: ctx, stop: stop, config: &running{}, vms: vms}
	t.config.swap(static.on(cfg.Boot))
	t.records = writes.Records{Ledger: cfg.Ledger, Writer: writer, Writes: writes.New(ctx, t.config.requestTimeout)}
	findMachines(ctx, t)
	if err := t.assemble(); err != nil {
		stop()
		return nil, err
	}
	return t, nil
}

// findMachines waits for the provider's list if another config than the accepted one may take effect, or none
// was accepted, and reads the records that the listing of the store lacked: how many machines a group has
// shows what it was given. If the VMs can't be listed within the request timeout, the takeover goes on without.
func findMachines(ctx context.Context, t *Term) {
	if t.config.now().unchanged() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, t.config.requestTimeout())
	defer cancel()
	vms, err := t.vms.Peek(ctx)
	if err == nil {
		err = reconcile.Recall(ctx, t.records, vms)
	}
	if err != nil {
		t.cfg.Logger.Warn("taking over without the provider's list", slog.Any("error", err))
		return
	}
	t.counted = len(t.records.Malformed()) == 0
}

// loadRecords loads the ledger. A record of a later epoch ends the term.
func loadRecords(ctx context.Context, cfg Config) (*ledger.Writer, error) {
	writer := cfg.Ledger.Lead(cfg.Fence) // before Load: records of this epoch may appear already
	stats, err := cfg.Ledger.Load(ctx)
	if err != nil {
		return nil, &PartError{PartLedger, err}
	}
	cfg.Logger.Info("records loaded", slog.Any("stats", stats))
	if later := cfg.Ledger.HighestEpoch(); later > cfg.Fence.Epoch() {
		cfg.Fence.RiseAbove(later)
		return nil, fmt.Errorf("records were written in epoch %d, this is %d: %w", later, cfg.Fence.Epoch(), election.ErrNotLeader)
	}
	return writer, nil
}

// assemble creates the parts of the term and wires them.
func (t *Term) assemble() (err error) {
	t.problems = problems.New(problems.Config{Now: t.cfg.Now, Logger: t.cfg.Logger, Changed: t.problemChanged})
	if t.history, err = t.newHistory(); err != nil {
		return err
	}
	t.clocks = newClocks(t)
	t.rotations = newRotations(func(key fleet.GroupKey) { t.watches.Changed(key, "") })
	t.doubts, t.builder = newDoubts(), t.newBuilder()
	t.keys = identities.NewKeys(t.records.IsLiving, t.records.Instances())
	if t.groups, err = groups.New(t.ctx, t.groupsConfig()); err != nil {
		return &PartError{partGroups, err}
	}
	t.shown = shownProblems{set: t.problems, gone: t.groups.Gone, now: t.cfg.Now}
	t.types = t.newInstanceTypes()
	accepts := &acceptance{
		cfg: t.cfg, config: t.config, groups: t.groups, writes: t.records.Writes, doubt: t.doubts.request, altered: t.altered,
		applied: newVersioned(t.cfg, appliedKey(t.cfg.Static.Shard)),
	}
	unlisted := removalCheck{groups: t.groups, records: t.records, accounted: func() (listed, recorded bool) { return false, false }}
	if err := accepts.atTakeover(t.ctx, unlisted, t.counted); err != nil {
		return &PartError{PartConfig, err}
	}
	if t.loop, err = reconcile.New(t.loopConfig()); err != nil {
		return err
	}
	known := identities.NewDirectory(t.cfg.Servers, t.cfg.Operators, t.cfg.Now)
	t.known = identities.New(t.records.IsLiving, known, t.loop, t.records.Instances())
	if t.files, err = t.newDelivery(); err != nil {
		return &PartError{partFiles, err}
	}
	t.cfg.Running(t.config.shard())
	t.refresh = &refresher{
		cfg: t.cfg, term: t.ctx, config: t.config, groups: t.groups, accepts: accepts,
		removals: removalCheck{groups: t.groups, records: t.records, accounted: t.loop.Accounted},
		problems: t.problems, loop: t.loop, files: t.files, under: make(chan struct{}, 1),
	}
	seal := registry.Seal(t.cfg.CA)
	t.roster = roster.New(roster.Config{Store: t.cfg.Operators, Seal: seal, Now: t.cfg.Now, Logger: t.cfg.Logger, Found: t.cfg.Found})
	t.admission = &admission{config: t.config, groups: t.groups, now: t.cfg.Now}
	t.registry = registry.New(registry.Config{
		Operators: t.cfg.Operators, Store: t.cfg.Store, Fence: t.cfg.Fence, Seal: seal, Writer: t.cfg.Writer,
		Admission: t.admission, Writes: t.records.Writes, Roster: t.roster, Now: t.cfg.Now, Logger: t.cfg.Logger,
	})
	t.onDemand = ondemand.New(ondemand.Config{
		Records: t.records, Fence: t.cfg.Fence, Loop: t.loop, Shard: t.config.shard, Checks: t.cfg.Static.Checks, Group: t.groups.Group,
		Admission: t.admission, Touched: t.touched, Now: t.cfg.Now, Random: t.cfg.Random,
	})
	t.transitions = operators.NewTransitions(t.cfg.Now)
	t.watches = operators.NewWatches(operators.WatchesConfig{
		Shard: t.Operators(), Join: t.join, Done: t.ctx.Done(), Epoch: t.cfg.Fence.Epoch(), Writer: t.cfg.Writer,
		Now: t.cfg.Now,
	})
	t.assembled.Store(true)
	return nil
}

// problemChanged has the watches look at a group, or at all, once there are any.
func (t *Term) problemChanged(key fleet.GroupKey) {
	if t.assembled.Load() {
		t.watches.Changed(key, "")
	}
}

func (t *Term) groupsConfig() groups.Config {
	cfg := groups.Config{
		Records: t.records, Fence: t.cfg.Fence, Static: t.config.shard(), Checks: t.cfg.Static.Checks, Before: t.config.earlier,
		Counted:  func() bool { return t.assembled.Load() && t.refresh.removals.counted() },
		Problems: t.problems,
		Changed:  t.regrouped, Altered: t.altered, Doubt: t.doubts.request, Now: t.cfg.Now, Uniform: t.cfg.Uniform, Logger: t.cfg.Logger,
	}
	now := t.config.now()
	if other := now.other; other != nil && !now.fromApplied { // config/ was not accepted yet, so its sizes explain no instance
		cfg.Past = other.shard
	}
	cfg.First = now.last.shard == nil
	return cfg
}

// regrouped has the parts act on changed groups, or all if no key is given. Until the parts exist
// there is nothing to do.
func (t *Term) regrouped(keys ...fleet.GroupKey) {
	if t.assembled.Load() {
		t.loop.Enqueue(keys...)
		t.files.Changed(keys...)
	}
}

// requestRetention is for how long requests of instances that are gone are kept.
func (t *Term) requestRetention() time.Duration {
	return time.Duration(t.config.shard().Server.GarbageCollection.RequestRetention)
}

// altered updates problems, watches and instance types after the desired state of some
// groups changed, or of any group if no key is given.
func (t *Term) altered(keys ...fleet.GroupKey) {
	if !t.assembled.Load() {
		return
	}
	groups.Reports(t.groups).ClearReturned()
	if len(keys) == 0 {
		groups.Reports(t.groups).ClearMended()
		t.shown.prune()
		t.watches.Changed(fleet.GroupKey{}, "")
		t.types.changed()
		return
	}
	for _, key := range keys {
		groups.Reports(t.groups).ClearMendedOf(key)
		t.shown.pruneOf(key)
		t.watches.Changed(key, "")
		if group, ok := t.groups.Group(key); ok && !t.types.knows(group.InstanceType) {
			t.types.changed()
		}
	}
}

// Run reconciles, and holds the leader's address, until the term ends or an error shows that
// it is over. publish starts serving callers, and returns the function that redirects them to
// other servers, which is idempotent. Nothing acts for the term after Run returns.
func (t *Term) Run(publish func() (withdraw func())) error {
	defer t.stop()
	defer t.cfg.Replacements.End()
	if t.cfg.Starts != nil {
		for _, i := range t.records.Instances() {
			t.cfg.Starts.Pending(i.ID, t.records.Get)
		}
	}
	groups.Reports(t.groups).ReportAll()
	t.refresh.reportAwaiting()
	if stuck := t.cfg.Stuck(); stuck != "" {
		t.Report(fleet.Problem{At: t.cfg.Now(), Reason: ReasonStuck, Message: stuck})
	}
	var aside sync.WaitGroup
	for _, run := range t.tasks() {
		aside.Go(func() { run(t.ctx) })
	}
	withdraw := publish()
	// Redirect callers when the term ends, before the last write has finished.
	defer context.AfterFunc(t.ctx, withdraw)()
	err := t.loop.Run(t.ctx)
	t.stop()
	withdraw()
	t.records.Writes.End()
	aside.Wait()
	t.cfg.Logger.Info("term is over", slog.Uint64("epoch", t.cfg.Fence.Epoch()), slog.Any("cause", context.Cause(t.ctx)))
	return err
}

// tasks are what runs beside the loop until the term ends.
func (t *Term) tasks() []func(context.Context) {
	lease := time.Duration(t.config.shard().Server.LeaderElection.LeaseDuration)
	return []func(context.Context){
		func(context.Context) { // records the config that the term began with, if the takeover left that to it
			if t.refresh.late() != nil {
				t.doubts.request()
			}
		},
		t.holdAddress, t.findServers, t.refreshImages, t.types.run, t.tidy, essentials{t}.run, retention{t}.run, t.clocks.run,
		t.history.Run, t.groups.RunReads, t.refresh.remind, t.watches.Run, t.roster.Run,
		func(ctx context.Context) { t.groups.RunRelisting(ctx, lease, t.refresh.late) },
		func(ctx context.Context) { t.doubts.run(ctx, t.resolveDoubts, t.cfg.Uniform) },
		ondemand.NewExpiry(t.records, t.requestRetention, t.cfg.Now, t.cfg.Logger).Run,
	}
}

// findServers refreshes the servers so that the first records written from provider data leave
// their addresses out. Certificate checks refresh them on their own.
func (t *Term) findServers(ctx context.Context) {
	if err := t.known.RefreshServers(ctx); err != nil && ctx.Err() == nil {
		t.cfg.Logger.Warn("can't read the servers of other shards yet", slog.Any("error", err))
	}
}
