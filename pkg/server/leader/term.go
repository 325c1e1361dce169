// Package leader is one term of leadership: what a server does, and offers, only
// while it leads its shard. It takes over, keeps the shard's config and its groups,
// and reconciles until the term ends.
package leader

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/delivery"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/reconcile"
	"github.com/nstance/nstance/pkg/server/roster"
)

// Term is what exists only while this server leads. All of it ends with ctx. Safe
// for concurrent use. Its duties are those of its parts: each has its own state.
type Term struct {
	cfg  Config
	ctx  context.Context //nolint:containedctx // the term, in which the work of all parts ends
	stop context.CancelFunc

	config   *running
	records  records
	keys     *publicKeys
	groups   *groups
	refresh  *refresher
	doubts   *doubts
	problems *problems
	types    *instanceTypes
	builder  *builder
	loop     *reconcile.Loop
	files    *delivery.Delivery
	onDemand *onDemand
	roster   *roster.Roster
	registry *registry
	watches  *operators.Watches
}

// Take takes over: it reads everything that decisions depend on, config, records
// and groups. The term is the caller's to run when the error is nil. An error that
// is none of election.ErrNotLeader and ErrRestart may go away.
func Take(ctx context.Context, cfg Config) (*Term, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Static.epoch.Store(cfg.Fence.Epoch())
	static, err := cfg.Static.ReadFor(ctx, cfg.Boot)
	if err != nil {
		return nil, err
	}
	writer, err := loadRecords(ctx, cfg)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	t := &Term{cfg: cfg, ctx: ctx, stop: stop, config: &running{}}
	t.config.swap(static.on(cfg.Boot))
	t.records = records{cfg.Ledger, writer, newWrites(ctx, t.config.requestTimeout)}
	if err := t.assemble(); err != nil {
		stop()
		return nil, err
	}
	return t, nil
}

// loadRecords reads the records, for a term that is not over by what they say.
func loadRecords(ctx context.Context, cfg Config) (*ledger.Writer, error) {
	writer := cfg.Ledger.Lead(cfg.Fence) // before it loads: records of this epoch are in reach
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

// assemble makes the parts of the term, and wires them.
func (t *Term) assemble() (err error) {
	t.problems, t.doubts, t.builder = newProblems(t.cfg), newDoubts(), t.newBuilder()
	t.keys = newPublicKeys(t.records.isLiving, t.records.Instances())
	if t.groups, err = t.newGroups(); err != nil {
		return &PartError{partGroups, err}
	}
	t.types = t.newInstanceTypes()
	t.refresh = &refresher{
		cfg: t.cfg, term: t.ctx, config: t.config, groups: t.groups,
		removals: removalCheck{groups: t.groups, records: t.records, accounted: t.accounted},
		problems: t.problems, doubt: t.doubts.ask,
		under: make(chan struct{}, 1), applied: newVersioned(t.cfg, appliedKey(t.cfg.Static.Shard)),
	}
	if err := t.refresh.atTakeover(t.ctx); err != nil {
		return &PartError{PartConfig, err}
	}
	if t.loop, err = reconcile.New(t.loopConfig()); err != nil {
		return err
	}
	if t.files, err = t.newDelivery(); err != nil {
		return &PartError{partFiles, err}
	}
	t.cfg.Running(t.config.shard())
	t.refresh.loop, t.refresh.files = t.loop, t.files
	t.groups.changed = func(keys ...fleet.GroupKey) { t.loop.Kick(keys...); t.files.Changed(keys...) }
	t.roster = roster.New(roster.Config{Store: t.cfg.Operators, Now: t.cfg.Now, Logger: t.cfg.Logger})
	t.registry = &registry{cfg: t.cfg, writes: t.records.writes, roster: t.roster, listings: make(chan struct{}, 1)}
	t.onDemand = &onDemand{cfg: t.cfg, config: t.config, groups: t.groups, records: t.records, touched: t.touched}
	t.watches = operators.NewWatches(operators.WatchesConfig{
		Shard: t.Operators(), Join: t.join, Done: t.ctx.Done(), Epoch: t.cfg.Fence.Epoch(), Writer: t.cfg.Writer,
		Now: t.cfg.Now,
	})
	t.problems.gone, t.problems.held, t.problems.lasting = t.groups.gone, t.loop.Held, t.lastingProblems
	t.problems.known, t.problems.knownOf = t.loop.Lasting, t.loop.LastingOf
	t.problems.told = func(key fleet.GroupKey) { t.watches.Changed(key, "") }
	t.types.told = func() { t.watches.Changed(fleet.GroupKey{}, "") }
	t.groups.altered = t.altered
	return nil
}

// accounted reports whether no machine can be without a record that is known.
func (t *Term) accounted() bool { return t.loop != nil && t.loop.Accounted() }

// altered has everybody follow what is desired: of some groups, or of any if none is
// named.
func (t *Term) altered(keys ...fleet.GroupKey) {
	t.problems.returned(holding{t.groups, t.records}.missing)
	if len(keys) == 0 {
		t.problems.mended(t.groups.invalid())
		t.problems.prune()
		t.watches.Changed(fleet.GroupKey{}, "")
		t.types.changed()
		return
	}
	for _, key := range keys {
		t.problems.mendedOf(key, t.groups.wrong(key))
		t.problems.pruneOf(key)
		t.watches.Changed(key, "")
		if group, ok := t.groups.Group(key); ok && !t.types.knows(group.InstanceType) {
			t.types.changed()
		}
	}
}

// Run reconciles, and keeps the leader's address, until the term ends or, by an
// error that says so, is found to be over. publish lets callers in; what it returns
// sends them elsewhere, and may be called more than once. When Run returns, nothing
// acts in the term's name any more.
func (t *Term) Run(publish func() (withdraw func())) error {
	defer t.stop()
	t.groups.tell()
	t.refresh.tellOfAwaiting()
	lease := time.Duration(t.config.shard().Server.LeaderElection.LeaseDuration)
	var aside sync.WaitGroup
	aside.Go(t.holdAddress)
	aside.Go(func() { t.groups.keepRead(t.ctx, lease, t.refresh.late) })
	aside.Go(func() { t.doubts.keepSettled(t.ctx, t.settle, t.cfg.Uniform) })
	aside.Go(t.keepImages)
	aside.Go(func() { t.types.keep(t.ctx) })
	aside.Go(func() { t.refresh.remind(t.ctx) })
	aside.Go(func() { t.watches.Run(t.ctx) })
	aside.Go(func() { t.roster.Keep(t.ctx) })
	aside.Go(func() { t.expiry().run(t.ctx) })
	aside.Go(func() { t.tidy(t.ctx) })
	withdraw := publish()
	// Callers are told to look elsewhere at once, not when the last write is over.
	defer context.AfterFunc(t.ctx, withdraw)()
	err := t.loop.Run(t.ctx)
	t.stop()
	withdraw()
	t.records.writes.end()
	aside.Wait()
	t.cfg.Logger.Info("term is over", slog.Uint64("epoch", t.cfg.Fence.Epoch()), slog.Any("cause", context.Cause(t.ctx)))
	return err
}
