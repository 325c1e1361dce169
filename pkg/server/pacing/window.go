package pacing

import (
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
	// mostDeaths is the maximum number of deaths that are remembered.
	mostDeaths = 500
	// deathsFade is how long a death is remembered while creates don't fail.
	deathsFade = time.Hour
	// freeProbation is the probation limit at which the limit is lifted.
	freeProbation = 64
)

// failureWindow holds the outcomes of a group's latest creates and derives its pace. While the
// provider refuses creates, or instances die young, the group backs off exponentially and
// then tries one create. After a success two instances may be on probation, and one more after
// each further success, so the limit doubles each time all of them succeed. It uses no clock
// and no randomness, and is not safe for concurrent use.
type failureWindow struct {
	infra  string         // the group's Infra hash: a change resets the window
	calls  []answeredCall // at most callWindow
	deaths []plan.Death   // in the order in which they were noticed

	refusedAt time.Time // since when creates count as refused; zero: they do not
	dyingAt   time.Time // since when instances count as dying young; zero: they do not
	failures  int
	since     time.Time // of the first failure
	level     int       // of the back-off
	raisedAt  time.Time // when level was last raised
	until     time.Time // no create before
	last      Failure

	probation int                // when creates no longer fail: how many may be on probation; 0: any number
	settling  bool               // instances on probation have to live for a while
	oldest    time.Duration      // the highest age of a death since settling was set
	foundAt   time.Time          // when the failures were detected; instances proven by then don't count
	proven    []fleet.InstanceID // past their probation
}

// answeredCall is one create that the provider has answered.
type answeredCall struct {
	id      fleet.InstanceID
	at      time.Time
	refused bool
}

// failing reports whether creates fail.
func (s *failureWindow) failing() bool { return s.refusing() || s.dying() }

func (s *failureWindow) refusing() bool { return !s.refusedAt.IsZero() }
func (s *failureWindow) dying() bool    { return !s.dyingAt.IsZero() }

// fail records failures that were noticed together, given the living instances. wait draws
// the back-off of level n.
func (s *failureWindow) fail(failed []Failure, living []plan.Life, wait func(n int) time.Duration) {
	was := s.failing()
	for _, f := range failed {
		s.note(f)
	}
	last := failed[len(failed)-1]
	if last.Young {
		s.judgeDeaths(last, living)
	} else {
		s.judgeRefusals(last)
	}
	if !s.failing() || last.Young && !s.dying() {
		return
	}
	if !was {
		s.level, s.probation = 0, 0
		s.foundAt, s.proven, s.settling = last.At, nil, s.dying()
		s.failures, s.since = s.counted()
	} else {
		s.failures += len(failed)
	}
	for _, f := range failed {
		s.raise(f, wait)
	}
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

// note records a failure without evaluating it.
func (s *failureWindow) note(f Failure) {
	s.last = f
	if !f.Young {
		s.answered(answeredCall{id: f.ID, at: f.At, refused: true})
		return
	}
	if !s.failing() {
		s.deaths = slices.DeleteFunc(s.deaths, func(d plan.Death) bool { return f.At.Sub(d.At) > deathsFade })
	}
	s.deaths = append(s.deaths, plan.Death{Life: plan.Life{ID: f.ID, Began: f.Began, Age: f.Age}, At: f.At})
	s.deaths = slices.Delete(s.deaths, 0, max(0, len(s.deaths)-mostDeaths))
	if s.settling {
		s.oldest = max(s.oldest, f.Age)
	}
}

func (s *failureWindow) judgeDeaths(f Failure, living []plan.Life) {
	if s.dying() || !plan.DyingYoung(s.deaths, living) {
		return
	}
	s.dyingAt, s.settling = f.At, true
	for _, d := range s.deaths {
		s.oldest = max(s.oldest, d.Age)
	}
}

func (s *failureWindow) judgeRefusals(f Failure) {
	if n, _ := s.refusals(); !s.refusing() && n >= leastRefusals && 2*n >= len(s.calls) {
		s.refusedAt = f.At
	}
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

// counted returns the number of failures at detection, and the time of the first.
func (s *failureWindow) counted() (n int, since time.Time) {
	if s.dying() {
		return len(s.deaths), s.deaths[0].At
	}
	return s.refusals()
}

// accept records that the provider accepted the create of an instance, which began at the
// given time, in a group of the given size. Earlier failures of the same create are dropped.
func (s *failureWindow) accept(id fleet.InstanceID, began time.Time, size int) {
	s.calls = slices.DeleteFunc(s.calls, func(c answeredCall) bool { return c.id == id })
	s.answered(answeredCall{id: id, at: began})
	switch {
	case s.dying():
		s.refusedAt = time.Time{} // no success yet: the instance has to live
	case !s.settling && (!s.refusing() || began.After(s.refusedAt)):
		s.succeed(size)
	}
}

func (s *failureWindow) answered(c answeredCall) {
	s.calls = append(s.calls, c)
	s.calls = slices.Delete(s.calls, 0, max(0, len(s.calls)-callWindow))
}

// survive records the living instances of a group of the given size. It ends the dying state
// if they refute it, and counts instances past their probation. next is when calling it again
// may have more effect; zero: never without an event.
func (s *failureWindow) survive(living []plan.Life, settings plan.Settings, size int, now time.Time) (next time.Time) {
	if s.dying() {
		after, ok := plan.RefutedIn(s.deaths, living)
		switch {
		case ok && after == 0:
			s.refute()
		case ok:
			next = now.Add(after)
		}
	}
	if !s.settling {
		return next
	}
	proof := s.pace().ProvenAfter(settings)
	for _, l := range living {
		lastsAt := now.Add(proof - l.Age)
		if lastsAt.After(now) {
			next = plan.Sooner(next, lastsAt)
			continue
		}
		s.prove(l.ID, lastsAt, size)
	}
	return next
}

// prove records that an instance of a group of the given size ended its probation. Each
// instance counts once; those that were past it before foundAt don't count.
func (s *failureWindow) prove(id fleet.InstanceID, at time.Time, size int) {
	if !s.settling || !at.After(s.foundAt) || slices.Contains(s.proven, id) {
		return
	}
	s.proven = append(s.proven, id)
	s.succeed(size)
}

// succeed ends the failing state, or raises the probation limit.
func (s *failureWindow) succeed(size int) {
	switch {
	case s.failing():
		*s = failureWindow{infra: s.infra, settling: s.settling, oldest: s.oldest, foundAt: s.foundAt, proven: s.proven, probation: 2}
	case s.probation > 0:
		s.probation++
	}
	if s.probation >= min(freeProbation, size) {
		s.probation, s.settling, s.oldest, s.proven = 0, false, 0, nil
	}
}

// refute ends the dying state that the survivors refuted. The deaths are remembered.
func (s *failureWindow) refute() {
	s.dyingAt, s.settling, s.oldest = time.Time{}, false, 0
	if !s.refusing() {
		*s = failureWindow{infra: s.infra, calls: s.calls, deaths: s.deaths}
	}
}

// pace returns the limits of the group's creates.
func (s *failureWindow) pace() (p plan.Pace) {
	if s.settling {
		p.Settling, p.Proof = true, plan.ProofAfter(s.oldest)
	}
	switch {
	case s.failing():
		p.NotBefore, p.Probation = s.until, 1
		return p
	case s.probation > 0:
		p.Probation = s.probation
		return p
	default:
		return plan.Pace{}
	}
}

// blank reports whether s holds no information.
func (s *failureWindow) blank() bool {
	return !s.failing() && s.probation == 0 && len(s.calls) == 0 && len(s.deaths) == 0
}

// condition returns the failing state as shown to users, if creates fail.
func (s *failureWindow) condition(now time.Time) (c fleet.CreatesFailing, ok bool) {
	if !s.failing() {
		return c, false
	}
	c = fleet.CreatesFailing{Since: s.since, Failures: s.failures, Reason: s.last.Reason, Message: s.last.Message}
	if s.until.After(now) {
		c.Next = s.until
	}
	return c, true
}
