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
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/delivery"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/images"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/reconcile"
	"github.com/nstance/nstance/pkg/server/roster"
)

// Term is what exists only while this server leads. All of it ends with ctx. Safe
// for concurrent use.
type Term struct {
	cfg      Config
	ctx      context.Context
	stop     context.CancelFunc
	fence    *election.Term
	static   running
	ledger   *ledger.Ledger
	writer   *ledger.Writer
	writes   *writes
	wanted   *wanted
	applied  versioned // of applied/; belongs to the acceptance under way
	loop     *reconcile.Loop
	troubles *troubles
	images   *images.Cache
	files    *delivery.Delivery
	// refreshes holds one while the static config is read again.
	refreshes chan struct{}
	// doubts holds one when it is not known what the store holds of groups/ or applied/.
	doubts   chan struct{}
	watches  *operators.Watches
	onDemand tally
	roster   *roster.Roster
	// listings holds one while the records of operators are listed for a caller.
	listings chan struct{}
}

// Take takes over: it reads everything that decisions depend on, config, records
// and groups. The term is the caller's to run when the error is nil. An error that
// is none of election.ErrNotLeader and ErrRestart may go away.
func Take(ctx context.Context, cfg Config) (*Term, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	t, err := takeOver(ctx, cfg)
	if err != nil {
		stop()
		return nil, err
	}
	t.stop = stop
	return t, nil
}

func takeOver(ctx context.Context, cfg Config) (*Term, error) {
	cfg.Static.epoch.Store(cfg.Fence.Epoch())
	static, err := cfg.Static.ReadFor(ctx, cfg.Boot)
	if err != nil {
		return nil, err
	}
	writer := cfg.Ledger.Lead(cfg.Fence) // before it loads: records of this epoch are in reach
	stats, err := cfg.Ledger.Load(ctx)
	if err != nil {
		return nil, InPart(PartLedger, err)
	}
	cfg.Logger.Info("records loaded", slog.Any("stats", stats))
	if later := cfg.Ledger.HighestEpoch(); later > cfg.Fence.Epoch() {
		cfg.Fence.RiseAbove(later)
		return nil, fmt.Errorf("records were written in epoch %d, this is %d: %w", later, cfg.Fence.Epoch(), election.ErrNotLeader)
	}
	t := &Term{
		cfg: cfg, ctx: ctx, fence: cfg.Fence, ledger: cfg.Ledger, writer: writer,
		troubles: newTroubles(cfg.Logger), refreshes: make(chan struct{}, 1), doubts: make(chan struct{}, 1), listings: make(chan struct{}, 1),
		roster: roster.New(roster.Config{Store: cfg.Operators, Now: cfg.Now, Logger: cfg.Logger}),
	}
	t.applied = t.versionOf(appliedKey(cfg.Static.Shard))
	t.writes = newWrites(ctx, t.requestTimeout)
	t.static.swap(static.on(cfg.Boot))
	t.images = t.newImages()
	if t.wanted, err = t.newWanted(); err != nil {
		return nil, InPart(partGroups, err)
	}
	if err := t.acceptAtTakeover(ctx); err != nil {
		return nil, InPart(PartConfig, err)
	}
	if t.loop, err = reconcile.New(t.loopConfig()); err != nil {
		return nil, err
	}
	if t.files, err = delivery.New(ctx, t.deliveryConfig()); err != nil {
		return nil, InPart(partFiles, err)
	}
	t.cfg.Running(t.static.shard())
	t.wanted.reread = func() { t.loop.Kick(); t.files.Changed() }
	t.watch()
	return t, nil
}

// versionOf begins to keep count of an object's versions.
func (t *Term) versionOf(key string) versioned {
	rise := func(later uint64) {
		t.cfg.Logger.Warn("an object is of a later epoch", slog.String("key", key), slog.Uint64("later", later))
		t.fence.RiseAbove(later)
	}
	return versioned{key: key, epoch: t.fence.Epoch(), writer: t.cfg.Writer, rise: rise}
}

// ReasonGroups is the reason of problems with the definitions of dynamic groups.
const ReasonGroups = "GroupsInvalid"

// Dynamic groups are read again once a lease after the takeover, and written if this
// term has not, so that no write of a leader before can land any more; and then they
// are read every hour; every minute while they can't be.
const (
	groupsInterval      = time.Hour
	groupsRetryInterval = time.Minute
)

// tellOfGroups reports what is wrong with the definitions of dynamic groups.
func (t *Term) tellOfGroups() {
	for _, p := range t.wanted.Problems() {
		t.troubles.report(fleet.Problem{At: t.cfg.Now(), Reason: ReasonGroups, Message: p.String(), Group: groupIn(p.Path)})
	}
}

func (t *Term) rereadGroups() {
	wait, first := time.Duration(t.static.shard().Server.LeaderElection.LeaseDuration), true
	for rpc.Sleep(t.ctx, wait) == nil {
		wait = groupsInterval
		switch err := t.wanted.reload(t.ctx); {
		case err != nil:
			wait = groupsRetryInterval
		case first && t.wanted.unreadable() == nil:
			first = false
			t.doubt()
		}
		t.tellOfGroups()
		if t.wanted.unreadable() != nil || t.acceptLate() != nil {
			wait = groupsRetryInterval
		}
	}
}

// Run reconciles, and keeps the leader's address, until the term ends or, by an
// error that says so, is found to be over. publish lets callers in; what it returns
// sends them elsewhere, and may be called more than once. When Run returns, nothing
// acts in the term's name any more.
func (t *Term) Run(publish func() (withdraw func())) error {
	defer t.stop()
	t.tellOfGroups()
	var aside sync.WaitGroup
	if t.cfg.Network != nil {
		aside.Go(func() { t.holdAddress(t.cfg.Network) })
	}
	aside.Go(t.rereadGroups)
	aside.Go(t.settleDoubts)
	aside.Go(t.keepImages)
	aside.Go(t.tellOfConfig)
	aside.Go(func() { t.watches.Run(t.ctx) })
	aside.Go(func() { t.roster.Keep(t.ctx) })
	withdraw := publish()
	// Callers are told to look elsewhere at once, not when the last write is over.
	defer context.AfterFunc(t.ctx, withdraw)()
	err := t.loop.Run(t.ctx)
	t.stop()
	withdraw()
	t.writes.end()
	aside.Wait()
	t.cfg.Logger.Info("term is over", slog.Uint64("epoch", t.fence.Epoch()), slog.Any("cause", context.Cause(t.ctx)))
	return err
}

// holdAddress takes the leader's address by force, and again whenever it turns
// out to be elsewhere.
func (t *Term) holdAddress(n provider.LeaderNetwork) {
	ctx := provider.WithGuard(t.ctx, t.fence.Check)
	for {
		interval := time.Duration(t.static.shard().Server.GarbageCollection.Interval)
		held, err := n.Check(ctx)
		if err == nil && !held {
			err = n.Assign(ctx)
		}
		wait := interval
		if err != nil && ctx.Err() == nil {
			t.cfg.Logger.Error("can't take the leader's address", slog.Any("error", err))
			wait = min(interval, addressRetry)
		}
		if rpc.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// addressRetry is how soon the leader's address is tried for again.
const addressRetry = 5 * time.Second
