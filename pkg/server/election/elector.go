package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Elector campaigns for one record. Its methods are safe for concurrent use.
type Elector struct {
	cfg   Config
	log   *slog.Logger
	board *board
	told  lastWarning

	mu      sync.Mutex
	machine *machine
	needs   *Needs
	blocked Blocked // as last reported
	time    stopwatch
	running bool
	changed chan struct{} // closed when phase, sent or blocked changes
	rearm   chan struct{} // signals Run that wake may have changed
	ended   chan struct{} // closed when the campaign ends

	// The running campaign.
	perform  func(command)
	prepare  func()
	lead     func(context.Context, *Term) error
	stopTerm context.CancelCauseFunc
	hangUp   map[uint64]context.CancelFunc
	work     sync.WaitGroup
}

// New returns an Elector that does nothing until Run is called.
func New(c Config) (*Elector, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Clock == nil {
		c.Clock = SystemClock()
	}
	if c.Needs == nil {
		c.Needs = NewNeeds(c.Clock)
	}
	log := c.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	e := &Elector{
		cfg: c, log: log, machine: newMachine(c), needs: c.Needs,
		changed: make(chan struct{}), rearm: make(chan struct{}, 1), ended: make(chan struct{}),
		hangUp: map[uint64]context.CancelFunc{},
	}
	e.board = newBoard(c.Holder, func() { e.step((*machine).peerJoined) })
	return e, nil
}

// Handler serves GET /leader to other servers. The caller serves it with mutual TLS and admits
// only servers of the same shard. It works before, during and after Run.
func (e *Elector) Handler() http.Handler { return e.board }

// Leader returns the last record seen, which has the leader's addresses. It returns false if no
// leader is known.
func (e *Elector) Leader() (Record, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.machine.leader()
}

// Lease is a leader's claim to lead.
type Lease struct {
	Epoch   uint64
	Renewed time.Time // when the last renewal that has landed was sent
	Ends    time.Time // unless it is renewed again
}

// Lease returns the lease of this server at a time, which is now; false if it does not lead.
func (e *Elector) Lease(now time.Time) (Lease, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.machine.phase != leading {
		return Lease{}, false
	}
	held := e.machine.view.record
	renewed := now.Add(-e.time.read(e.cfg.Clock.Now()).since(e.machine.sent))
	return Lease{held.Epoch, renewed, renewed.Add(held.LeaseDuration)}, true
}

// Run campaigns until ctx ends, then returns nil. It may be called once.
//
// Each time this server becomes leader, which is when it holds the record and the wait is
// over, Run calls lead. The term's context ends, with a cause, as soon as the term does; lead
// must then return promptly, and must not return while anything that acts for the term still
// runs. If ctx ends during a term, Run ends the term, waits for lead, and writes a release, so
// that the next leader need not wait. If lead returns on its own, the same happens, and this
// server campaigns again only after a pause, to let another server lead.
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context, t *Term) error) error {
	// Requests outlive ctx until the release is written.
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if err := e.start(requests, lead); err != nil {
		cancel()
		return err
	}
	e.loop(ctx)
	e.board.drain()
	cancel()
	e.work.Wait()
	return nil
}

func (e *Elector) start(ctx context.Context, lead func(context.Context, *Term) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running {
		return errors.New("run elector: it has been run before")
	}
	e.running, e.lead = true, lead
	e.perform = func(c command) { e.do(ctx, c) }
	e.prepare = func() {
		if e.cfg.Prepare != nil {
			e.work.Go(func() { e.cfg.Prepare(ctx) })
		}
	}
	return nil
}

// loop runs the machine's wake-ups until the campaign ends.
func (e *Elector) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	e.step((*machine).start)
	stop := ctx.Done()
	for {
		select {
		case <-e.ended:
			return
		case <-stop:
			stop = nil
			e.step((*machine).stop)
		case <-timer.C:
			e.step((*machine).tick)
		case <-e.rearm:
		}
		if wake := e.wake(); wake >= 0 {
			timer.Reset(wake)
		} else {
			timer.Stop()
		}
	}
}

func (e *Elector) wake() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.machine.wake
}

// step feeds an event to the machine and executes its commands. The clocks are read under the
// lock, so that the machine never sees time run backwards.
//
// Before Run it is a no-op: another server may call as soon as the address is open, and a
// machine whose command was not executed would wait for its result forever.
func (e *Elector) step(happened func(*machine, instant)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running {
		e.stepLocked(happened)
	}
}

func (e *Elector) stepLocked(happened func(*machine, instant)) instant {
	m := e.machine
	phase, sent, blocked := m.phase, m.sent, e.blocked
	m.lack = e.needs.longest()
	now := e.time.read(e.cfg.Clock.Now())
	happened(m, now)
	for _, c := range m.commands() {
		e.perform(c)
	}
	if m.phase != phase {
		e.log.Info("election phase changed", slog.String("from", phase.String()), slog.String("to", m.phase.String()),
			slog.String("holder", m.view.record.Holder), slog.Uint64("epoch", m.view.record.Epoch))
	}
	if m.phase == taking && phase != taking {
		e.prepare()
	}
	e.blocked = m.blocked(now)
	if m.phase != phase || m.sent != sent || e.blocked != blocked {
		close(e.changed)
		e.changed = make(chan struct{})
	}
	if m.phase == done && phase != done {
		close(e.ended)
	}
	select {
	case e.rearm <- struct{}{}:
	default:
	}
	return now
}

// standing is a term's state at one moment.
type standing struct {
	fenced  bool
	inTerm  bool
	sent    instant
	changed <-chan struct{} // closed when the state may have changed
}

// checkFence returns the term's state. If nothing is left of the fence window, or if early is
// set and less than half of it is left, a renewal is started.
func (e *Elector) checkFence(epoch uint64, early bool) standing {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.stepLocked(func(m *machine, now instant) {
		slack := time.Duration(0)
		if early {
			slack = m.window() / 2
		}
		m.demand(now, slack)
	})
	return standing{
		fenced: e.machine.fenced(now, epoch), inTerm: e.machine.inTerm(epoch),
		sent: e.machine.sent, changed: e.changed,
	}
}

func (e *Elector) startTerm(ctx context.Context, epoch uint64) {
	ctx, stop := context.WithCancelCause(ctx)
	e.stopTerm = stop
	e.needs.reset()
	t := &Term{elector: e, epoch: epoch, ctx: ctx}
	e.work.Go(func() {
		if err := e.lead(ctx, t); err != nil && ctx.Err() == nil {
			e.log.Error("lead ended", slog.Uint64("epoch", epoch), slog.Any("error", fmt.Errorf("lead epoch %d: %w", epoch, err)))
		}
		e.step((*machine).leadReturned)
	})
}
