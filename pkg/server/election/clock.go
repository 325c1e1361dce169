package election

import "time"

// Moment is one reading of a host's two clocks. Moments of different hosts, or
// of different processes, mean nothing to each other.
type Moment struct {
	Mono time.Duration // monotonic, from an arbitrary start; stands still in suspend
	Wall time.Time     // may be set forward or back at any time
}

// Clock reads both clocks. Implementations are safe for concurrent use.
type Clock interface {
	Now() Moment
}

type systemClock struct{ start time.Time }

// SystemClock reads the host's clocks through package time, so it follows the
// fake clock inside a testing/synctest bubble.
func SystemClock() Clock { return systemClock{start: time.Now()} }

func (c systemClock) Now() Moment {
	now := time.Now()
	return Moment{Mono: now.Sub(c.start), Wall: now.Round(0)}
}

// instant is how much time has passed since the process started: at least and at
// most, as far as two imperfect clocks can tell.
type instant struct{ least, most time.Duration }

// since is the time that may have passed from o to i.
func (i instant) since(o instant) time.Duration { return i.most - o.most }

// surelySince is the time that has certainly passed from o to i.
func (i instant) surelySince(o instant) time.Duration { return i.least - o.least }

// stopwatch turns readings into instants. From one reading to the next at most
// the larger of what both clocks measured has passed. It adds up step by step
// because a wall clock that was set back before a suspend would otherwise hide
// the suspend. At least what the monotonic clock measured has passed: it can only
// run behind.
type stopwatch struct {
	last  Moment
	now   instant
	begun bool
}

func (s *stopwatch) read(m Moment) instant {
	if s.begun {
		mono := max(m.Mono-s.last.Mono, 0)
		s.now.least += mono
		s.now.most += max(mono, m.Wall.Sub(s.last.Wall))
	}
	s.last, s.begun = m, true
	return s.now
}
