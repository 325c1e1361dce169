package pacing

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

const (
	// callWindow is the number of answered creates of a group that are considered.
	callWindow = 20
	// leastRefusals is the minimum number of refusals among them that counts as failing.
	leastRefusals = 2
	// widest is the width from which on the window limits nothing.
	widest = 64
)

// failureWindow holds the outcomes of a group's latest creates and derives its pace. While too many
// creates are refused, or too many instances end early, the group's creates go through a window: as
// many as its width may be on probation. It begins at one, doubles with each success and halves
// with each failure; while it is one, the group backs off exponentially. It uses no clock and no
// randomness, and is not safe for concurrent use.
type failureWindow struct {
	infra string         // the group's Infra hash: a change resets the window
	calls []answeredCall // at most callWindow
	early earlyEnds

	width    int                // 0: any number may be on probation
	shutAt   time.Time          // when width was set to one; instances proven by then don't count
	settling bool               // instances on probation have to outlive those that ended early
	oldest   time.Duration      // the highest age of these
	proven   []fleet.InstanceID // past their probation

	failures int       // since the group began to fail
	since    time.Time // of the first of them
	last     Failure
	level    int       // of the back-off
	raisedAt time.Time // when level was last raised
	until    time.Time // no create before
}

// answeredCall is one create that the provider has answered.
type answeredCall struct {
	id      fleet.InstanceID
	at      time.Time
	refused bool
}

// scene is what failures are judged by.
type scene struct {
	size   int                       // of the group
	settle time.Duration             // plan.Settings.Settle
	living func() []plan.Life        // is called only if it decides
	wait   func(n int) time.Duration // draws the back-off of level n
}

// failing reports whether creates fail.
func (s *failureWindow) failing() bool { return s.width == 1 }

// fail records failures that were noticed together.
func (s *failureWindow) fail(failed []Failure, by scene) {
	for _, f := range failed {
		s.note(f, by.size)
	}
	at := s.last.At
	switch {
	case s.width > 0:
		s.narrow(failed, at)
		if !s.settling && s.last.Young && s.early.exceed(at, by) {
			s.settle(at)
		}
	case s.last.Young && s.early.exceed(at, by):
		s.settle(at)
		s.failures, s.since = len(s.early.ends), s.early.ends[0].at
	case s.refused():
		s.width, s.shutAt = 1, at
		s.failures, s.since = s.refusals()
	}
	if !s.failing() {
		return
	}
	for _, f := range failed {
		s.raise(f, by.wait)
	}
}

// note records a failure in a group of the given size without evaluating it.
func (s *failureWindow) note(f Failure, size int) {
	s.last = f
	if !f.Young {
		s.answered(answeredCall{id: f.ID, at: f.At, refused: true})
		return
	}
	s.early.add(earlyEnd{at: f.At, age: f.Age}, size)
	if s.settling {
		s.oldest = max(s.oldest, f.Age)
	}
}

// narrow halves the window for each failure.
func (s *failureWindow) narrow(failed []Failure, at time.Time) {
	if !s.failing() {
		s.failures, s.since = 0, at
	}
	for range failed {
		s.width = max(1, s.width/2)
	}
	s.failures += len(failed)
}

// settle begins the window anew: instances on probation have to outlive those that ended early.
func (s *failureWindow) settle(at time.Time) {
	s.width, s.shutAt, s.settling, s.oldest, s.proven = 1, at, true, s.early.oldest(), nil
}

// raise raises the back-off after a failure, unless its create began before the last raise.
func (s *failureWindow) raise(f Failure, wait func(n int) time.Duration) {
	if s.level > 0 && !f.Began.After(s.raisedAt) {
		return
	}
	s.level++
	s.raisedAt = f.At
	s.until = f.At.Add(wait(s.level))
}

// refused reports whether the provider refuses creates: half of those that it answered, and two
// at the least.
func (s *failureWindow) refused() bool {
	n, _ := s.refusals()
	return n >= leastRefusals && 2*n >= len(s.calls)
}

// refusals counts the refusals among the last calls. since is the time of the first.
func (s *failureWindow) refusals() (n int, since time.Time) {
	for _, c := range s.calls {
		if c.refused {
			if n == 0 {
				since = c.at
			}
			n++
		}
	}
	return n, since
}

// accept records that the provider accepted the create of an instance, which began at the
// given time, in a group of the given size. Earlier failures of the same create are dropped.
func (s *failureWindow) accept(id fleet.InstanceID, began time.Time, size int) {
	s.calls = slices.DeleteFunc(s.calls, func(c answeredCall) bool { return c.id == id })
	s.answered(answeredCall{id: id, at: began})
	if s.width > 0 && !s.settling && began.After(s.shutAt) {
		s.succeed()
		if s.unlimited(size) {
			s.open()
		}
	}
}

func (s *failureWindow) answered(c answeredCall) {
	s.calls = append(s.calls, c)
	s.calls = slices.Delete(s.calls, 0, max(0, len(s.calls)-callWindow))
}

// survive records the living instances of a group of the given size: it counts those past their
// probation. next is when calling it again may have more effect; zero: never without an event.
func (s *failureWindow) survive(living []plan.Life, settings plan.Settings, size int, now time.Time) (next time.Time) {
	if !s.settling {
		return time.Time{}
	}
	proof := s.pace().ProvenAfter(settings)
	slices.SortFunc(living, func(a, b plan.Life) int { return cmp.Compare(b.Age, a.Age) })
	s.proven = slices.DeleteFunc(s.proven, func(id fleet.InstanceID) bool {
		return !slices.ContainsFunc(living, func(l plan.Life) bool { return l.ID == id })
	})
	for _, l := range living {
		lastsAt := now.Add(proof - l.Age)
		if lastsAt.After(now) {
			next = plan.Sooner(next, lastsAt)
			continue
		}
		s.prove(l.ID, lastsAt)
		if left := settings.Settle - l.Age; left > 0 {
			next = plan.Sooner(next, now.Add(left)) // makes good what ended early
		}
	}
	if s.unlimited(size) {
		s.early.makeGood(living, settings.Settle, now)
		s.reopen(size)
	}
	return next
}

// prove records that an instance ended its probation. Each instance counts once; those that were
// past it when the window was shut don't count, nor do any once it can't get wider.
func (s *failureWindow) prove(id fleet.InstanceID, at time.Time) {
	if s.settling && s.width < widest && at.After(s.shutAt) && !slices.Contains(s.proven, id) {
		s.proven = append(s.proven, id)
		s.succeed()
	}
}

// done records that an instance of a group of the given size ended as it had announced: its job was
// done. That is a success, and makes good one early end.
func (s *failureWindow) done(id fleet.InstanceID, at time.Time, size int) {
	s.early.makeGoodOne()
	s.prove(id, at)
	if s.settling {
		s.reopen(size)
	}
}

// succeed doubles the window.
func (s *failureWindow) succeed() {
	s.width = min(widest, 2*s.width)
	s.failures, s.since, s.level, s.raisedAt, s.until, s.calls = 0, time.Time{}, 0, time.Time{}, time.Time{}, nil
}

// unlimited reports whether the window of a group of the given size limits nothing.
func (s *failureWindow) unlimited(size int) bool { return s.width >= min(widest, size) }

// reopen ends the window of a group of the given size if it limits nothing, and the early ends have
// been made good.
func (s *failureWindow) reopen(size int) {
	if s.unlimited(size) && !s.early.above(size) {
		s.open()
	}
}

// open ends the window. What ended early counts until it is made good.
func (s *failureWindow) open() { *s = failureWindow{infra: s.infra, early: s.early} }

// pace returns the limits of the group's creates.
func (s *failureWindow) pace() (p plan.Pace) {
	if s.width == 0 {
		return plan.Pace{}
	}
	p.Probation, p.NotBefore = s.width, s.until
	if s.width >= widest {
		p.Probation = math.MaxInt32
	}
	if s.settling {
		p.Settling, p.Proof = true, plan.ProofAfter(s.oldest)
	}
	return p
}

// blank reports whether s holds no information.
func (s *failureWindow) blank() bool {
	return s.width == 0 && len(s.calls) == 0 && len(s.early.ends) == 0
}

// condition returns the failing state as shown to users, if creates fail.
func (s *failureWindow) condition(now time.Time) (c fleet.CreatesFailing, ok bool) {
	if !s.failing() {
		return c, false
	}
	c = fleet.CreatesFailing{Since: s.since, Failures: s.failures, Reason: s.last.Reason, Message: s.last.Message + s.last.Details}
	if s.until.After(now) {
		c.Next = s.until
	}
	return c, true
}
