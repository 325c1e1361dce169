package election

import "time"

// Moment is one reading of a host's two clocks. Moments of different hosts or processes can't be
// compared.
type Moment struct {
	Mono time.Duration // monotonic, from an arbitrary start; stops during suspend
	Wall time.Time     // may jump forward or back at any time
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

// instant is a lower and an upper bound of the time since the process started, as far as two
// imperfect clocks can tell.
type instant struct{ least, most time.Duration }

// since returns the upper bound of the time from o to i.
func (i instant) since(o instant) time.Duration { return i.most - o.most }

// surelySince returns the lower bound of the time from o to i.
func (i instant) surelySince(o instant) time.Duration { return i.least - o.least }

// stopwatch converts readings to instants. The upper bound adds the larger of both clocks'
// differences between readings. It adds up step by step because a wall clock that was set back
// before a suspend would otherwise hide the suspend. The lower bound is the monotonic clock:
// it can only lag.
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
