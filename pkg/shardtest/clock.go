package shardtest

import (
	"math/rand/v2"
	"time"
)

// mostAhead is the largest difference of a clock: object storage refuses requests that are 15
// minutes off.
const mostAhead = 14 * time.Minute

// MovesClock reports whether this build can move the wall clock: histories have steps of it then.
func MovesClock() bool { return stepClock(0) }

// doClockAhead moves the wall clock of all hosts forward.
func doClockAhead(s *Shard, a args) error { return moveClock(s, a.span) }

// doClockBack moves it back.
func doClockBack(s *Shard, a args) error { return moveClock(s, -a.span) }

func moveClock(s *Shard, by time.Duration) error {
	if s.ahead+by > mostAhead || s.ahead+by < -mostAhead {
		return nothing("the clock would be off by %s", s.ahead+by)
	}
	if !stepClock(by) {
		return nothing("this build has no clock that can be moved")
	}
	s.ahead += by
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	s.book.wall.move(s.ahead)
	return nil
}

// wall tracks the wall clock, which all hosts share. Guarded by book.mu.
type wall struct {
	least, most time.Duration        // how far it was ahead
	moved       time.Time            // first; zero: never
	terms       map[uint64]time.Time // when they began, by epoch
}

// move records that the wall clock is ahead by so much.
func (w *wall) move(ahead time.Duration) {
	w.least, w.most = min(w.least, ahead), max(w.most, ahead)
	if w.moved.IsZero() {
		w.moved = time.Now()
	}
}

// older is how much older than they are a term may take the instances of earlier ones to be: its
// leader reads their records when it takes over, by the wall clock.
func (w wall) older(epoch uint64) time.Duration {
	if w.moved.IsZero() || w.terms[epoch].Before(w.moved.Add(-storeTimeout)) {
		return 0
	}
	return w.most - w.least
}

// setClock ends the difference of the wall clock.
func setClock(s *Shard) error {
	if s.ahead == 0 {
		return nil
	}
	return moveClock(s, -s.ahead)
}

// steps draws steps of the wall clock in half of the seeds, if this build has one that can be moved.
func (g *generator) steps(seed uint64, length time.Duration) {
	own := &generator{draw: rand.New(rand.NewPCG(seed, 0xc10c4)), servers: g.servers}
	if !MovesClock() || own.draw.IntN(2) > 0 {
		return
	}
	for at := own.upTo(length / 2); at < length; at += own.upTo(length / 2) {
		own.at(at, "clock %s %s", own.choose("ahead", "back"), own.mostly(time.Minute, mostAhead))
	}
	g.lines = append(g.lines, own.lines...)
}
