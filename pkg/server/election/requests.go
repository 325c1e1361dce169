package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// firstEpochTimeout bounds reading all records of the shard.
const firstEpochTimeout = 5 * time.Minute

var errPeerTimeout = errors.New("peer did not answer in time")

// do starts a command. It never blocks: requests run in the background and report their
// results by a step. The caller holds mu. ctx is that of the whole campaign, not of the call
// that caused the command.
func (e *Elector) do(ctx context.Context, c command) {
	switch c := c.(type) {
	case getRecord:
		e.work.Go(func() { e.get(ctx, c) })
	case putRecord:
		e.work.Go(func() { e.put(ctx, c) })
	case askFirstEpoch:
		e.work.Go(func() { e.firstEpoch(ctx, c) })
	case dialPeer:
		ctx, cancel := context.WithCancel(ctx)
		e.hangUp[c.id] = cancel
		e.work.Go(func() { e.dial(ctx, c) })
	case hangUp:
		e.forget(c.id)
	case publish:
		e.board.post(notice(c))
	case askPeers:
		e.board.postQuestion(c.id)
	case proveReady:
		e.work.Go(func() { e.prove(ctx, c) })
	case startLead:
		e.startTerm(ctx, c.epoch)
	case stopLead:
		e.stopTerm(c.cause)
	}
}

func (e *Elector) get(ctx context.Context, c getRecord) {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var r Record
	o, err := e.cfg.Store.Get(bounded, e.cfg.Key)
	if err == nil {
		r, err = ParseRecord(o.Body)
	}
	if err != nil && !errors.Is(err, object.ErrNotFound) {
		e.warn(ctx, "read election record", err)
	}
	e.step(func(m *machine, now instant) { m.gotRecord(now, c.id, r, o.ETag, err) })
}

func (e *Elector) put(ctx context.Context, c putRecord) {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var etag object.ETag
	body, err := e.body(c.record)
	if err == nil {
		etag, err = e.cfg.Store.Put(bounded, e.cfg.Key, body, c.pre)
	}
	if err != nil && !errors.Is(err, object.ErrConflict) {
		e.warn(ctx, "write election record", err)
	}
	e.step(func(m *machine, now instant) { m.putDone(now, c.id, etag, err) })
}

func (e *Elector) firstEpoch(ctx context.Context, c askFirstEpoch) {
	bounded, cancel := context.WithTimeout(ctx, firstEpochTimeout)
	defer cancel()
	epoch, err := e.cfg.FirstEpoch(bounded)
	if err != nil {
		e.warn(ctx, "find first epoch", err)
	}
	e.step(func(m *machine, now instant) { m.gotFirstEpoch(now, c.id, epoch, err) })
}

// warn logs a failure that is retried anyway.
func (e *Elector) warn(ctx context.Context, doing string, err error) {
	if ctx.Err() != nil {
		return
	}
	err = fmt.Errorf("%s: %w", doing, err)
	level := slog.LevelWarn
	if e.told.repeats(err.Error(), e.cfg.Clock.Now().Mono) {
		level = slog.LevelDebug
	}
	e.log.LogAttrs(ctx, level, "election request failed", slog.String("key", e.cfg.Key), slog.Any("error", err))
}

// warnAgain is how often the same failure is logged as a warning: a leader retries an
// unreachable store several times a second.
const warnAgain = 10 * time.Second

// lastWarning is the last failure that was logged.
type lastWarning struct {
	mu   sync.Mutex
	text string
	at   time.Duration
}

// repeats reports whether text was logged a moment ago; if not, it is recorded.
func (w *lastWarning) repeats(text string, now time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if text == w.text && now-w.at < warnAgain {
		return true
	}
	w.text, w.at = text, now
	return false
}

// forget closes a connection to a peer. The caller holds mu.
func (e *Elector) forget(id uint64) {
	if cancel, ok := e.hangUp[id]; ok {
		delete(e.hangUp, id)
		cancel()
	}
}

// dial follows one connection until it ends.
func (e *Elector) dial(ctx context.Context, c dialPeer) {
	err := e.listen(ctx, c)
	e.mu.Lock()
	e.forget(c.id)
	e.mu.Unlock()
	e.log.Debug("peer stream ended", slog.String("addr", c.addr), slog.Any("error", err))
	e.step(func(m *machine, now instant) {
		switch {
		case errors.Is(err, ErrRefused):
			m.peerRefused(now, c.id)
		case errors.Is(err, ErrClosed):
			m.peerClosed(now, c.id)
		default:
			m.peerFailed(now, c.id)
		}
	})
}

// listen reports line by line until the connection ends. Only the first line has a timeout;
// after it, the lease covers silence.
func (e *Elector) listen(ctx context.Context, c dialPeer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := time.AfterFunc(c.timeout, func() { cancel(errPeerTimeout) })
	defer limit.Stop()
	s, err := e.cfg.Peers.Dial(ctx, c.addr)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	for {
		l, err := s.Next()
		if err != nil {
			return err
		}
		limit.Stop()
		e.step(func(m *machine, now instant) { m.peerLine(now, c.id, l) })
	}
}
