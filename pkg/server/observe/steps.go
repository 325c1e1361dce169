package observe

import (
	"maps"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/problems"
)

// attempts serializes the steps on one instance or group, with back-off while they fail.
type attempts struct {
	busy       bool      // a worker is active
	quietUntil time.Time // end of the back-off after a failed step
	last       string    // error of the last step; empty if it succeeded
	lastAt     time.Time // when it failed
	failures   int       // consecutive failed steps
}

// isBusy reports whether a step is active or backing off.
func (a *attempts) isBusy(now time.Time) bool { return a.busy || a.quietUntil.After(now) }

// end ends a step, and reports whether it failed just as the last one did.
func (a *attempts) end(err error, wait func(failures int) time.Duration, now time.Time) (repeated bool) {
	before := a.last
	a.busy = false
	a.note(err, now)
	if err == nil {
		a.failures, a.quietUntil = 0, time.Time{}
		return false
	}
	a.failures++
	a.quietUntil = now.Add(wait(a.failures))
	return a.last == before
}

// note records the outcome of a step.
func (a *attempts) note(err error, now time.Time) {
	a.last, a.lastAt = "", time.Time{}
	if err != nil {
		a.last, a.lastAt = problems.Text(err), now
	}
}

// attempts calls use with the attempts of an instance or, without an id, of a group.
func (s *State) attempts(key fleet.GroupKey, id fleet.InstanceID, use func(*attempts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != "" {
		use(&s.instance(id).steps)
		return
	}
	if s.groups[key] == nil {
		s.groups[key] = &attempts{}
	}
	use(s.groups[key])
}

// StartStep marks a step of an instance or, without an id, an edit of the group as started.
// While one is active or backing off, it returns the earliest time to try again (zero: not
// known) instead.
func (s *State) StartStep(key fleet.GroupKey, id fleet.InstanceID, now time.Time) (ok bool, notBefore time.Time) {
	s.attempts(key, id, func(a *attempts) {
		if ok = !a.isBusy(now); !ok && !a.busy {
			notBefore = a.quietUntil
		}
		a.busy = a.busy || ok
	})
	return ok, notBefore
}

// EndStep ends what StartStep started, and reports whether it failed just as the last one did.
// After an error the next one starts no earlier than wait, by the number of consecutive
// failures.
func (s *State) EndStep(
	key fleet.GroupKey, id fleet.InstanceID, err error, wait func(failures int) time.Duration, now time.Time,
) (repeated bool) {
	s.attempts(key, id, func(a *attempts) {
		if repeated = a.end(err, wait, now); id == "" && err == nil {
			delete(s.groups, key) // frees the entry
		}
	})
	return repeated
}

// forgetEditsAfter is how long after its back-off the state of a group edit is dropped if the
// edit is not repeated. It is well above the longest back-off of a step.
const forgetEditsAfter = time.Minute

// forgetEdits drops the state of group edits that are no longer repeated. The caller holds the
// lock.
func (s *State) forgetEdits(now time.Time) {
	maps.DeleteFunc(s.groups, func(_ fleet.GroupKey, a *attempts) bool { return !a.busy && now.Sub(a.quietUntil) > forgetEditsAfter })
}
