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
	plight  Plight // as last told
	time    stopwatch
	running bool
	changed chan struct{} // closed when the phase or the last renewal changed
	rearm   chan struct{} // tells Run that wake may have changed
	ended   chan struct{} // closed when the campaign is over

	// Of the campaign under way.
	perform  func(command)
	lead     func(context.Context, *Term) error
	stopTerm context.CancelCauseFunc
	hangUp   map[uint64]context.CancelFunc
	work     sync.WaitGroup
}

// New checks the configuration. Nothing happens before Run.
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

// Handler serves GET /leader to other servers. The caller serves it with mutual
// TLS and admits only servers of the same shard. It answers before, during and
// after Run.
func (e *Elector) Handler() http.Handler { return e.board }

// Leader returns the record seen last, whose holder is where callers should turn
// to. False: nobody is known to lead.
func (e *Elector) Leader() (Record, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.machine.leader()
}

// Run campaigns until ctx ends, then returns nil. It may be called once.
//
// Each time this server leads, which is when the record is its own and the wait
// is over, Run calls lead. The term's context ends, with a cause, the moment the
// term does; lead must then return promptly, and must not return while anything
// that acts in the term's name still runs. When ctx ends in a term, Run ends the
// term, waits for lead, and writes a release, so that the next leader need not
// wait. When lead returns of its own accord the same happens, and this server
// campaigns again only after a pause, so that another may do better.
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context, t *Term) error) error {
	// Requests outlive ctx until the release is written.
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if err := e.begin(requests, lead); err != nil {
		cancel()
		return err
	}
	e.loop(ctx)
	e.board.drain()
	cancel()
	e.work.Wait()
	return nil
}

func (e *Elector) begin(ctx context.Context, lead func(context.Context, *Term) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running {
		return errors.New("run elector: it has been run before")
	}
	e.running, e.lead = true, lead
	e.perform = func(c command) { e.do(ctx, c) }
	return nil
}

// loop wakes the machine when it asked for it, until the campaign is over.
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

// step tells the machine what happened and starts what it asks for. The clocks
// are read under the lock, so that the machine never sees them run backwards
// by being overtaken.
//
// Before Run nothing can be started, so nothing happens: another server may ask as
// soon as the address is open, and a machine that asked for something in vain would
// wait for it for ever.
func (e *Elector) step(happened func(*machine, instant)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running {
		e.stepLocked(happened)
	}
}

func (e *Elector) stepLocked(happened func(*machine, instant)) instant {
	m := e.machine
	phase, sent, plight := m.phase, m.sent, e.plight
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
	e.plight = m.plight(now)
	if m.phase != phase || m.sent != sent || e.plight != plight {
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

// standing is what a term may know at one moment.
type standing struct {
	fenced  bool
	inTerm  bool
	sent    instant
	changed <-chan struct{} // closed when another look is worth it
}

// checkFence reads the clocks and judges; if nothing is left of the window, or
// with early less than half of it, a renewal gets under way.
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
