package observe

import (
	"cmp"
	"errors"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// This file follows the create of an instance, from its start to its outcome.

// StartCreate marks the create of an instance as started, unless the instance is busy. If it
// replaces a lost instance, that one awaits no other replacement, and how it was lost is
// returned. immediate means that the lost one had settled.
func (s *State) StartCreate(id, replaces fleet.InstanceID, immediate bool, now time.Time) (lost Loss, ok bool) {
	s.with(id, func(i *instance) {
		if ok = !i.steps.isBusy(now); !ok {
			return
		}
		i.steps.busy, i.attemptedAt, i.standsIn = true, now, i.standsIn || immediate
		if old := s.instances[replaces]; old != nil && old.loss != nil {
			old.loss.replaced = true
			lost = old.loss.how
		}
	})
	return lost, ok
}

// CreateCalled records when the provider's create was called, unless it was definitely refused.
func (s *State) CreateCalled(id fleet.InstanceID, at time.Time) {
	s.with(id, func(i *instance) { i.askedAt = at })
}

// Refusal returns the error of a create as it is reported: an error that only says that the
// attempt was used before is replaced by the provider's last definite refusal.
func (s *State) Refusal(id fleet.InstanceID, err error) error {
	s.with(id, func(i *instance) {
		switch {
		case err == nil:
			i.refusedFor = nil
		case errors.Is(err, provider.ErrUsed) || errors.Is(err, provider.ErrSpent):
			err = cmp.Or(i.refusedFor, err)
		case provider.Definite(err):
			i.refusedFor = err
		}
	})
	return err
}

// EndCreate ends a create that succeeded, was given up or was put off: an error does not count
// as a failure of the instance, and nothing delays the next create or delete.
func (s *State) EndCreate(id fleet.InstanceID, err error, now time.Time) {
	s.with(id, func(i *instance) {
		i.steps.busy, i.retryAt = false, time.Time{}
		i.steps.note(err, now)
		if err == nil {
			i.steps.failures = 0
		}
	})
}

// FailCreate ends a create that failed, or whose outcome is unknown. It is repeated after wait,
// by the number of consecutive failures; nil: at once.
func (s *State) FailCreate(id fleet.InstanceID, err error, wait func(failures int) time.Duration, now time.Time) {
	s.with(id, func(i *instance) {
		i.steps.busy, i.retryAt = false, time.Time{}
		i.steps.note(err, now)
		i.steps.failures++
		if wait != nil {
			i.retryAt = now.Add(wait(i.steps.failures))
		}
	})
}

// RetryAt sets when the instance's create or delete is retried; zero: at once.
func (s *State) RetryAt(id fleet.InstanceID, at time.Time) {
	s.with(id, func(i *instance) { i.retryAt = at })
}

// DoubtRecord records whether the outcome of the last write of an instance's record, during its
// create or to end it, is unknown.
func (s *State) DoubtRecord(id fleet.InstanceID, is bool) {
	s.with(id, func(i *instance) { i.recordDoubtful = is })
}

// attempted returns when the provider's create was last called for the instance.
func (i *instance) attempted(r fleet.Instance) time.Time {
	at := i.attemptedAt
	if r.Provider.CreateAttemptedAt != nil && r.Provider.CreateAttemptedAt.After(at) {
		at = *r.Provider.CreateAttemptedAt
	}
	return at
}

// began returns when the create that made the instance's machine began.
func (i *instance) began(r fleet.Instance) time.Time {
	if asked := i.attempted(r); asked.After(r.CreatedAt) {
		return asked
	}
	return r.CreatedAt
}

// mayHaveAsked returns the latest time at which the provider's create may have been called.
// For earlier terms the record only has the first call: while the provider throttled, the
// previous leader may have retried until this term began.
func (i *instance) mayHaveAsked(r fleet.Instance, began time.Time) time.Time {
	at := i.attempted(r)
	if i.attemptedAt.IsZero() && r.Provider.CreateAttemptedAt != nil && began.After(at) {
		return began
	}
	return at
}
