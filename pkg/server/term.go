package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/election"
	"github.com/nstance/nstance/pkg/images"
	"github.com/nstance/nstance/pkg/ledger"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/reconcile"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/delivery"
	"github.com/nstance/nstance/pkg/server/operators"
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
	loop     *reconcile.Loop
	troubles *troubles
	images   *images.Cache
	files    *delivery.Delivery
	// refreshes holds one while the static config is read again.
	refreshes chan struct{}
	watches   *operators.Watches
	onDemand  tally
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
	for failures := 0; ; failures++ {
		t, err := s.takeOver(ctx, fence)
		if err == nil {
			s.cfg.Logger.Info("ready to act", slog.Uint64("epoch", fence.Epoch()), slog.Duration("took", s.cfg.Now().Sub(began)))
			return t.run(stop) //nolint:contextcheck // it has the term's own
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
		s.ready.Ready("leading, but waiting: " + err.Error())
		wait := min(takeOverRetry, time.Second<<min(failures, 5))
		if rpc.Sleep(ctx, wait/2+s.jitter(wait/2)) != nil {
			return nil
		}
	}
}

// takeOver reads everything that decisions depend on: config, records, groups.
func (s *Server) takeOver(ctx context.Context, fence *election.Term) (*term, error) {
	static, err := s.readConfig(ctx)
	if err != nil {
		return nil, err
	}
	if fields := endingFields(s.boot, static.shard); len(fields) > 0 {
		return nil, fatal{fmt.Errorf("the config of %s changed since this server started: it must start anew to run it", strings.Join(fields, ", "))}
	}
	stats, err := s.ledger.Load(ctx)
	if err != nil {
		return nil, err
	}
	s.cfg.Logger.Info("records loaded", slog.Any("stats", stats))
	t := &term{
		server: s, ctx: ctx, fence: fence, ledger: s.ledger, writer: s.ledger.Lead(fence),
		troubles: newTroubles(s.cfg.Logger), refreshes: make(chan struct{}, 1),
	}
	t.writes = newWrites(ctx, t.requestTimeout)
	t.static.swap(static.on(s.boot))
	t.images = t.newImages()
	t.wanted, err = newWanted(ctx, t.static.shard(), t.writer, fence.Epoch(), s.holder)
	if err != nil {
		return nil, err
	}
	if err := t.acceptAtTakeover(ctx); err != nil {
		return nil, err
	}
	if t.loop, err = reconcile.New(t.loopConfig()); err != nil {
		return nil, err
	}
	if t.files, err = delivery.New(ctx, t.deliveryConfig()); err != nil {
		return nil, err
	}
	s.latest.Store(t.static.shard())
	t.applyTiming()
	t.wanted.reread = func() { t.loop.Kick(); t.files.Changed() }
	t.watch()
	return t, nil
}

// ReasonGroups is the reason of problems with the definitions of dynamic groups.
const ReasonGroups = "GroupsInvalid"

// Dynamic groups are read again once a lease after the takeover, when a write of
// the leader before can't land any more, and then every hour; every minute while
// they can't be read.
const (
	groupsInterval      = time.Hour
	groupsRetryInterval = time.Minute
)

// tellOfGroups reports what is wrong with the definitions of dynamic groups.
func (t *term) tellOfGroups() {
	for _, p := range t.wanted.Problems() {
		t.troubles.report(reconcile.Problem{At: t.server.cfg.Now(), Reason: ReasonGroups, Message: p.String(), Group: groupIn(p.Path)})
	}
}

func (t *term) rereadGroups() {
	wait := time.Duration(t.static.shard().Server.LeaderElection.LeaseDuration)
	for rpc.Sleep(t.ctx, wait) == nil {
		wait = groupsInterval
		if err := t.wanted.reload(t.ctx); err != nil {
			wait = groupsRetryInterval
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
func (t *term) run(stop context.CancelFunc) error {
	s := t.server
	t.tellOfGroups()
	var aside sync.WaitGroup
	if s.network != nil {
		aside.Go(func() { t.holdAddress(s.network) })
	}
	aside.Go(t.rereadGroups)
	aside.Go(t.keepImages)
	aside.Go(t.tellOfConfig)
	aside.Go(func() { t.watches.Run(t.ctx) })
	s.current.Store(t)
	s.ready.Ready("leading")
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
