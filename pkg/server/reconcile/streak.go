package reconcile

import (
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/plan"
)

const (
	// streakWindow is how many decided creates of a group are looked at.
	streakWindow = 20
	// streakLeast is how many failures among them make a streak at least.
	streakLeast = 2
	// freeTrials is how many instances may be on trial when that bounds nothing any more.
	freeTrials = 64
)

// streak is what became of a group's latest creates, and how they are paced for it.
// While they fail the group waits longer and longer, and then tries one. Once that
// has worked, two may be on trial, and one more after each that works, so that their
// number doubles each time all of them have. It knows no clock and no chance, and
// is not safe for concurrent use.
type streak struct {
	infra  string // the group's hash: a change starts afresh
	recent []decided

	failing  bool
	settling bool // a create has worked only when its instance has settled
	failures int
	since    time.Time // the first of them
	began    time.Time // when the streak was found
	level    int       // of the backoff
	raisedAt time.Time // when it last rose
	until    time.Time // no create before then
	trials   int       // once it is over: how many may be on trial; 0: any number
	last     failedCreate
}

// decided is one decided create.
type decided struct {
	id     fleet.InstanceID
	at     time.Time
	failed bool
	young  bool // there was a machine, which did not live, or register
}

// failedCreate is a create that the provider refused, or an instance that came to
// nothing before it had settled.
type failedCreate struct {
	id      fleet.InstanceID
	began   time.Time // the create
	at      time.Time
	young   bool
	reason  string
	message string
}

// fail takes over a failure. wait draws the wait after the n-th one in a row.
func (s *streak) fail(f failedCreate, wait func(n int) time.Duration) {
	s.add(decided{id: f.id, at: f.at, failed: true, young: f.young})
	s.last = f
	if !s.failing {
		failures := slices.DeleteFunc(slices.Clone(s.recent), func(v decided) bool { return !v.failed })
		if n := len(failures); n < streakLeast || 2*n < len(s.recent) {
			return
		}
		s.failing, s.since, s.began = true, failures[0].at, f.at
		s.failures, s.level, s.trials = len(failures)-1, 0, 0
		s.settling = slices.ContainsFunc(failures, func(v decided) bool { return v.young })
	}
	s.failures++
	s.settling = s.settling || f.young
	if s.level > 0 && !f.began.After(s.raisedAt) {
		return // it was under way together with the one that raised it
	}
	s.level++
	s.raisedAt = f.at
	s.until = f.at.Add(wait(s.level))
}

// accept takes over that the provider accepted the create of an instance, which began
// at a moment, in a group of a size. Failures of the same create were none, then.
func (s *streak) accept(id fleet.InstanceID, began time.Time, size int) {
	s.recent = slices.DeleteFunc(s.recent, func(v decided) bool { return v.id == id && !v.young })
	if !s.settling && (!s.failing || began.After(s.began)) {
		s.succeed(size)
	}
}

// settle takes over that an instance of a group of a size has settled.
func (s *streak) settle(id fleet.InstanceID, at time.Time, size int) {
	s.add(decided{id: id, at: at})
	if s.settling {
		s.succeed(size)
	}
}

// succeed ends the streak, or lets more instances be on trial.
func (s *streak) succeed(size int) {
	switch {
	case s.failing:
		*s = streak{infra: s.infra, settling: s.settling, trials: 2}
	case s.trials > 0:
		s.trials++
	}
	if s.trials >= min(freeTrials, size) {
		s.trials, s.settling = 0, false
	}
}

func (s *streak) add(v decided) {
	s.recent = append(s.recent, v)
	if extra := len(s.recent) - streakWindow; extra > 0 {
		s.recent = slices.Delete(s.recent, 0, extra)
	}
}

// pace is what the group's creates are bound to.
func (s *streak) pace() plan.Pace {
	switch {
	case s.failing:
		return plan.Pace{NotBefore: s.until, Trials: 1, Settling: s.settling}
	case s.trials > 0:
		return plan.Pace{Trials: s.trials, Settling: s.settling}
	default:
		return plan.Pace{}
	}
}

// blank reports whether nothing is known.
func (s *streak) blank() bool { return !s.failing && s.trials == 0 && len(s.recent) == 0 }

// condition is the streak as it is told, if there is one.
func (s *streak) condition(now time.Time) (c fleet.CreatesFailing, ok bool) {
	if !s.failing {
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
