package reconcile

import (
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/plan"
)

const (
	// callWindow is how many answered creates of a group are looked at.
	callWindow = 20
	// leastRefusals is how many refusals among them make a streak at least.
	leastRefusals = 2
	// mostDeaths is how many deaths are remembered.
	mostDeaths = 500
	// deathsFade is for how long a death is remembered while creates don't fail.
	deathsFade = time.Hour
	// freeTrials is how many instances may be on trial when that bounds nothing any more.
	freeTrials = 64
)

// streak is what became of a group's latest creates, and how they are paced for it.
// While the provider refuses them, or what they make dies young, the group waits longer
// and longer, and then tries one. Once that has worked, two may be on trial, and one more
// after each that works, so that their number doubles each time all of them have. It
// knows no clock and no chance, and is not safe for concurrent use.
type streak struct {
	infra  string         // the group's hash: a change starts afresh
	calls  []answeredCall // the last ones
	deaths []plan.Death   // in the order in which they were noticed

	refusedAt time.Time // when it was found that creates are refused; zero: they are not
	dyingAt   time.Time // when it was found that instances die young; zero: they do not
	failures  int
	since     time.Time // the first of them
	level     int       // of the backoff
	raisedAt  time.Time // when it last rose
	until     time.Time // no create before then
	last      failedCreate

	trials   int                // once it is over: how many may be on trial; 0: any number
	settling bool               // those on trial have to last
	oldest   time.Duration      // the highest age at which one died, since creates were free
	foundAt  time.Time          // what had lasted by then is no trial
	proven   []fleet.InstanceID // trials that have lasted
}

// answeredCall is one create that the provider has answered.
type answeredCall struct {
	id      fleet.InstanceID
	at      time.Time
	refused bool
}

// failedCreate is a create that the provider refused, or an instance that came to
// nothing before it had settled.
type failedCreate struct {
	id      fleet.InstanceID
	began   time.Time // the create
	at      time.Time
	young   bool          // there was a machine, which did not live, or register
	age     time.Duration // for which it lived, registered
	reason  string
	message string
}

// failing reports whether creates fail.
func (s *streak) failing() bool { return s.refusing() || s.dying() }

func (s *streak) refusing() bool { return !s.refusedAt.IsZero() }
func (s *streak) dying() bool    { return !s.dyingAt.IsZero() }

// fail records failures that were noticed together, beside instances that live. wait
// draws the wait after the n-th one in a row.
func (s *streak) fail(failed []failedCreate, living []plan.Life, wait func(n int) time.Duration) {
	was := s.failing()
	for _, f := range failed {
		s.note(f)
	}
	last := failed[len(failed)-1]
	if last.young {
		s.judgeDeaths(last, living)
	} else {
		s.judgeRefusals(last)
	}
	if !s.failing() || last.young && !s.dying() {
		return
	}
	if !was {
		s.level, s.trials = 0, 0
		s.foundAt, s.proven, s.settling = last.at, nil, s.dying()
		s.failures, s.since = s.counted()
	} else {
		s.failures += len(failed)
	}
	for _, f := range failed {
		s.raise(f, wait)
	}
}

// raise makes the group wait longer after a failure, unless that was under way together
// with the one that did so last.
func (s *streak) raise(f failedCreate, wait func(n int) time.Duration) {
	if s.level > 0 && !f.began.After(s.raisedAt) {
		return
	}
	s.level++
	s.raisedAt = f.at
	s.until = f.at.Add(wait(s.level))
}

// note remembers a failure, and judges nothing by it.
func (s *streak) note(f failedCreate) {
	s.last = f
	if !f.young {
		s.answered(answeredCall{id: f.id, at: f.at, refused: true})
		return
	}
	if !s.failing() {
		s.deaths = slices.DeleteFunc(s.deaths, func(d plan.Death) bool { return f.at.Sub(d.At) > deathsFade })
	}
	s.deaths = append(s.deaths, plan.Death{Life: plan.Life{ID: f.id, Began: f.began, Age: f.age}, At: f.at})
	s.deaths = slices.Delete(s.deaths, 0, max(0, len(s.deaths)-mostDeaths))
	if s.settling {
		s.oldest = max(s.oldest, f.age)
	}
}

func (s *streak) judgeDeaths(f failedCreate, living []plan.Life) {
	if s.dying() || !plan.DyingYoung(s.deaths, living) {
		return
	}
	s.dyingAt, s.settling = f.at, true
	for _, d := range s.deaths {
		s.oldest = max(s.oldest, d.Age)
	}
}

func (s *streak) judgeRefusals(f failedCreate) {
	if n, _ := s.refusals(); !s.refusing() && n >= leastRefusals && 2*n >= len(s.calls) {
		s.refusedAt = f.at
	}
}

// refusals counts those among the last calls. since is the first of them.
func (s *streak) refusals() (n int, since time.Time) {
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

// counted is how many failures the streak begins with, and since when there are any.
func (s *streak) counted() (n int, since time.Time) {
	if s.dying() {
		return len(s.deaths), s.deaths[0].At
	}
	return s.refusals()
}

// accept records that the provider accepted the create of an instance, which began at a
// moment, in a group of a size. Failures of the same create were none, then.
func (s *streak) accept(id fleet.InstanceID, began time.Time, size int) {
	s.calls = slices.DeleteFunc(s.calls, func(c answeredCall) bool { return c.id == id })
	s.answered(answeredCall{id: id, at: began})
	switch {
	case s.dying():
		s.refusedAt = time.Time{} // that it was made is no news, it has to live
	case !s.settling && (!s.refusing() || began.After(s.refusedAt)):
		s.succeed(size)
	}
}

func (s *streak) answered(c answeredCall) {
	s.calls = append(s.calls, c)
	s.calls = slices.Delete(s.calls, 0, max(0, len(s.calls)-callWindow))
}

// survive records which instances of a group of a size live. It ends a streak of deaths
// that are outweighed by them, and counts the trials that have lasted. next is when
// they will have lived long enough for more of that; zero: never, as it looks now.
func (s *streak) survive(living []plan.Life, settings plan.Settings, size int, now time.Time) (next time.Time) {
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
			next = sooner(next, lastsAt)
			continue
		}
		s.prove(l.ID, lastsAt, size)
	}
	return next
}

// prove records that an instance of a group of a size has outlived those that died, by
// enough. Each counts once, and those that had done so before the streak do not.
func (s *streak) prove(id fleet.InstanceID, at time.Time, size int) {
	if !s.settling || !at.After(s.foundAt) || slices.Contains(s.proven, id) {
		return
	}
	s.proven = append(s.proven, id)
	s.succeed(size)
}

// succeed ends the streak, or lets more instances be on trial.
func (s *streak) succeed(size int) {
	switch {
	case s.failing():
		*s = streak{infra: s.infra, settling: s.settling, oldest: s.oldest, foundAt: s.foundAt, proven: s.proven, trials: 2}
	case s.trials > 0:
		s.trials++
	}
	if s.trials >= min(freeTrials, size) {
		s.trials, s.settling, s.oldest, s.proven = 0, false, 0, nil
	}
}

// refute ends a streak of deaths that was none. They are remembered.
func (s *streak) refute() {
	s.dyingAt, s.settling, s.oldest = time.Time{}, false, 0
	if !s.refusing() {
		*s = streak{infra: s.infra, calls: s.calls, deaths: s.deaths}
	}
}

// pace is what the group's creates are bound to.
func (s *streak) pace() (p plan.Pace) {
	if s.settling {
		p.Settling, p.Proof = true, plan.ProofAfter(s.oldest)
	}
	switch {
	case s.failing():
		p.NotBefore, p.Trials = s.until, 1
		return p
	case s.trials > 0:
		p.Trials = s.trials
		return p
	default:
		return plan.Pace{}
	}
}

// blank reports whether nothing is known.
func (s *streak) blank() bool {
	return !s.failing() && s.trials == 0 && len(s.calls) == 0 && len(s.deaths) == 0
}

// condition is the streak as it is told, if there is one.
func (s *streak) condition(now time.Time) (c fleet.CreatesFailing, ok bool) {
	if !s.failing() {
		return c, false
	}
	c = fleet.CreatesFailing{Since: s.since, Failures: s.failures, Reason: s.last.reason, Message: s.last.message}
	if s.until.After(now) {
		c.Next = s.until
	}
	return c, true
}

// createBackoff is for creates that fail, of a group or of an on-demand instance.
func createBackoff(limit time.Duration) retry.Backoff {
	return retry.Backoff{First: min(time.Second, limit), Limit: limit}
}
