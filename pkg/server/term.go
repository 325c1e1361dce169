package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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

// term is what exists only while this server leads. All of it ends with ctx.
type term struct {
	server   *Server
	ctx      context.Context
	fence    *election.Term
	static   static
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

// A leader that can't take over, because the store or the config can't be read,
// tries again after a second, and more and more rarely up to this. Its lease
// holds meanwhile; if the store stays away the lease ends the term.
const takeOverRetry = 30 * time.Second

// lead is one term of leadership: it takes over, publishes the term to the
// services, and reconciles until ctx ends.
func (s *Server) lead(ctx context.Context, fence *election.Term) error {
	began := s.cfg.Now()
	s.cfg.Logger.Info("leading", slog.Uint64("epoch", fence.Epoch()))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer s.ready.Ready("standing by")
	for failures := 0; ; failures++ {
		t, err := s.takeOver(ctx, fence)
		s.needs.Begin(election.NeedTakeover).End(err)
		if err == nil {
			return t.run(stop, began) //nolint:contextcheck // it has the term's own
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, election.ErrNotLeader):
			s.cfg.Logger.Warn("gave up the lead", slog.Any("error", err))
			return nil
		case errors.As(err, new(fatal)):
			s.fail(err)
			return nil
		}
		s.cfg.Logger.Error("can't take over yet", slog.Any("error", err))
		s.ready.Ready("leading, but waiting: " + partOf(err))
		wait := min(takeOverRetry, time.Second<<min(failures, 5))
		if rpc.Sleep(ctx, wait/2+s.jitter(wait/2)) != nil {
			return nil
		}
	}
}

// takeOver reads everything that decisions depend on: config, records, groups.
func (s *Server) takeOver(ctx context.Context, fence *election.Term) (*term, error) {
	s.epoch.Store(fence.Epoch())
	static, err := s.readConfig(ctx)
	if err != nil {
		return nil, inPart(partConfig, err)
	}
	if fields := endingFields(s.boot, static.shard); len(fields) > 0 {
		return nil, fatal{fmt.Errorf("the config of %s changed since this server started: it must start anew to run it", strings.Join(fields, ", "))}
	}
	writer := s.ledger.Lead(fence) // before it loads: records of this epoch are in reach
	stats, err := s.ledger.Load(ctx)
	if err != nil {
		return nil, inPart(partLedger, err)
	}
	s.cfg.Logger.Info("records loaded", slog.Any("stats", stats))
	if later := s.ledger.HighestEpoch(); later > fence.Epoch() {
		fence.RiseAbove(later)
		return nil, fmt.Errorf("records were written in epoch %d, this is %d: %w", later, fence.Epoch(), election.ErrNotLeader)
	}
	t := &term{
		server: s, ctx: ctx, fence: fence, ledger: s.ledger, writer: writer,
		troubles: newTroubles(s.cfg.Logger), refreshes: make(chan struct{}, 1), doubts: make(chan struct{}, 1), listings: make(chan struct{}, 1),
		roster: roster.New(roster.Config{Store: s.bare, Now: s.cfg.Now, Logger: s.cfg.Logger}),
	}
	t.applied = t.versionOf(appliedKey(s.cfg.Shard))
	t.writes = newWrites(ctx, t.requestTimeout)
	t.static.swap(static.on(s.boot))
	t.images = t.newImages()
	if t.wanted, err = t.newWanted(); err != nil {
		return nil, inPart(partGroups, err)
	}
	if err := t.acceptAtTakeover(ctx); err != nil {
		return nil, inPart(partConfig, err)
	}
	if t.loop, err = reconcile.New(t.loopConfig()); err != nil {
		return nil, err
	}
	if t.files, err = delivery.New(ctx, t.deliveryConfig()); err != nil {
		return nil, inPart(partFiles, err)
	}
	s.latest.Store(t.static.shard())
	t.applyTiming()
	t.wanted.reread = func() { t.loop.Kick(); t.files.Changed() }
	t.watch()
	return t, nil
}

// versionOf begins to keep count of an object's versions.
func (t *term) versionOf(key string) versioned {
	rise := func(later uint64) {
		t.server.cfg.Logger.Warn("an object is of a later epoch", slog.String("key", key), slog.Uint64("later", later))
		t.fence.RiseAbove(later)
	}
	return versioned{key: key, epoch: t.fence.Epoch(), writer: t.server.holder, rise: rise}
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
func (t *term) tellOfGroups() {
	for _, p := range t.wanted.Problems() {
		t.troubles.report(fleet.Problem{At: t.server.cfg.Now(), Reason: ReasonGroups, Message: p.String(), Group: groupIn(p.Path)})
	}
}

func (t *term) rereadGroups() {
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

// run publishes the term, keeps the leader's address, and reconciles until the
// term ends or, by an error that says so, is found to be over; stop then ends
// the rest. It returns when nothing acts in the term's name any more.
func (t *term) run(stop context.CancelFunc, began time.Time) error {
	s := t.server
	t.tellOfGroups()
	var aside sync.WaitGroup
	if s.network != nil {
		aside.Go(func() { t.holdAddress(s.network) })
	}
	aside.Go(t.rereadGroups)
	aside.Go(t.settleDoubts)
	aside.Go(t.keepImages)
	aside.Go(t.tellOfConfig)
	aside.Go(func() { t.watches.Run(t.ctx) })
	aside.Go(func() { t.roster.Keep(t.ctx) })
	s.current.Store(t)
	s.ready.Ready("leading")
	// Only now: whoever reads this and calls is answered.
	s.cfg.Logger.Info("ready to act", slog.Uint64("epoch", t.fence.Epoch()), slog.Duration("took", s.cfg.Now().Sub(began)))
	// Callers are told to look elsewhere at once, not when the last write is over.
	defer context.AfterFunc(t.ctx, t.unpublish)()
	err := t.loop.Run(t.ctx)
	stop()
	t.unpublish()
	t.writes.end()
	aside.Wait()
	s.cfg.Logger.Info("term is over", slog.Uint64("epoch", t.fence.Epoch()), slog.Any("cause", context.Cause(t.ctx)))
	return err
}

func (t *term) unpublish() {
	if t.server.current.CompareAndSwap(t, nil) {
		t.server.ready.Ready("standing by")
	}
}

// holdAddress takes the leader's address by force, and again whenever it turns
// out to be elsewhere.
func (t *term) holdAddress(n provider.LeaderNetwork) {
	ctx := provider.WithGuard(t.ctx, t.fence.Check)
	for {
		interval := time.Duration(t.static.shard().Server.GarbageCollection.Interval)
		held, err := n.Check(ctx)
		if err == nil && !held {
			err = n.Assign(ctx)
		}
		wait := interval
		if err != nil && ctx.Err() == nil {
			t.server.cfg.Logger.Error("can't take the leader's address", slog.Any("error", err))
			wait = min(interval, addressRetry)
		}
		if rpc.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// addressRetry is how soon the leader's address is tried for again.
const addressRetry = 5 * time.Second

// term returns the term, or what to tell a caller when there is none.
func (s *Server) term() (*term, error) {
	if t := s.current.Load(); t != nil {
		return t, nil
	}
	return nil, errNoTerm()
}
