package observe

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/pacing"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
)

// This file determines the outcome of each instance's create: whether the instance settled or
// failed before. Each instance counts once.

// Judged marks instances as already counted.
func (s *State) Judged(ids []fleet.InstanceID) {
	for _, id := range ids {
		s.with(id, func(i *instance) { i.judged = true })
	}
}

// judge marks a running instance as counted if it has settled.
func (i *instance) judge(r *fleet.Instance, settings plan.Settings, now time.Time) {
	if !i.judged && !r.OnDemand && r.Phase == fleet.Running {
		i.judged = i.hasSettled(r, settings, now)
	}
}

// hasSettled reports whether an instance had settled by now, or when it was lost.
func (i *instance) hasSettled(r *fleet.Instance, settings plan.Settings, now time.Time) bool {
	return plan.Settled(r, settings, i.livedUntil(now))
}

// livedUntil returns when the instance was lost, or now.
func (i *instance) livedUntil(now time.Time) time.Time {
	if i.loss != nil && i.loss.how.At.Before(now) {
		return i.loss.how.At
	}
	return now
}

// age returns how long an instance has lived since its registration.
func (i *instance) age(r *fleet.Instance, now time.Time) time.Duration {
	if r.RegisteredAt == nil {
		return 0
	}
	return max(0, i.livedUntil(now).Sub(*r.RegisteredAt))
}

// Living returns a group's living registered instances that have its current Infra hash,
// without the failed ones.
func (s *State) Living(instances []plan.Instance, g fleet.Group, now time.Time, failed []pacing.Failure) (all []plan.Life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := make(map[fleet.InstanceID]bool, len(failed))
	for _, f := range failed {
		ended[f.ID] = true
	}
	for n := range instances {
		x := &instances[n]
		if x.OnDemand || x.RegisteredAt == nil || x.Hashes.Infra != g.Hashes.Infra || x.VM.Dead() || ended[x.ID] {
			continue
		}
		if x.Phase != fleet.Running && (x.Phase != fleet.Draining || x.Drain != nil && plan.Failure(x.Drain.Reason)) {
			continue
		}
		i := s.instance(x.ID)
		all = append(all, plan.Life{ID: x.ID, Age: i.age(x.Instance, now)})
	}
	return all
}

// Ended returns the instances that a decision removes before they settled: those that failed, as
// failed creates, and those that did what they announced. They count as judged from now on.
func (s *State) Ended(v plan.View, actions []plan.Action) (failed []pacing.Failure, done []fleet.InstanceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range actions {
		announced := plan.Announced(a.Reason)
		if a.ID == "" || !announced && !plan.Failure(a.Reason) {
			continue
		}
		x, i := v.Find(a.ID), s.instance(a.ID)
		if x == nil || x.OnDemand || !x.Phase.Active() || i.judged {
			continue
		}
		i.judged = true
		if x.Hashes.Infra != v.Group.Hashes.Infra || i.hasSettled(x.Instance, v.Settings, v.Now) {
			continue
		}
		if announced {
			done = append(done, a.ID)
			continue
		}
		failed = append(failed, pacing.Failure{
			ID: a.ID, Began: i.began(*x.Instance), At: v.Now, Young: true, Age: i.age(x.Instance, v.Now),
			Reason: pacing.ReasonFor(a.Reason), Message: failedYoung(x, a.Reason, explain(a.Reason, i.why, ""), v.Settings),
			Details: strings.TrimPrefix(explain(a.Reason, "", i.refused), a.Reason),
		})
	}
	return failed, done
}

// failedYoung returns the message about an instance that failed before it settled.
func failedYoung(x *plan.Instance, reason, why string, settings plan.Settings) string {
	switch {
	case reason == plan.ReasonRegistrationTimeout:
		return fmt.Sprintf("instance %s did not register within %v (server.garbage_collection.registration_timeout)",
			x.ID, settings.RegistrationTimeout)
	case x.RegisteredAt == nil:
		return unregistered(x.ID, why)
	default:
		return fmt.Sprintf("the machine of instance %s failed within %v of its registration (server.create_backoff.settle): %s",
			x.ID, settings.Settle, why)
	}
}

// Explain appends what is known of the cause to the reason for which an instance leaves: the
// provider's reason for the end of the machine, or why the agent could not register. The text is
// informational: no decision depends on it.
func (s Snapshot) Explain(reason string) string { return explain(reason, s.Why, s.Refused) }

// Evidence returns what shows that the machine is gone, in brackets; empty if it was found last.
func (s Snapshot) Evidence() string {
	if s.MissedAt.IsZero() {
		return ""
	}
	calls := "1 call"
	if s.Misses != 1 {
		calls = fmt.Sprintf("%d calls", s.Misses)
	}
	return fmt.Sprintf(" (not found by %s since %s)", calls, s.MissedAt.UTC().Format(time.RFC3339))
}

func explain(reason, why, refused string) string {
	switch {
	case why != "" && (endOfMachine(reason) || reason == plan.ReasonShutdown):
		return reason + ": " + why
	case refused != "" && reason == plan.ReasonRegistrationTimeout:
		return reason + ": " + refused
	default:
		return reason
	}
}

func endOfMachine(reason string) bool {
	return reason == plan.ReasonVMDown || reason == plan.ReasonVMGone
}

// DiedYoung returns the problem of an instance whose machine died before its agent registered;
// nil otherwise. was is its record before it is removed for a reason, and why explains that.
// For a registered instance the replacement alone is enough information.
func DiedYoung(was fleet.Instance, reason, why string) error {
	if was.Phase != fleet.Pending || !endOfMachine(reason) {
		return nil
	}
	return problems.Because(problems.ReasonDied, errors.New(unregistered(was.ID, why)))
}

func unregistered(id fleet.InstanceID, why string) string {
	return fmt.Sprintf("the machine of instance %s ended before its agent registered: %s", id, why)
}
