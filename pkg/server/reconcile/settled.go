package reconcile

import (
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// This file tells what became of each instance's create: whether the instance lived
// until it had settled. Each counts once.

// hasSettled reports whether an instance had settled by now, or by the moment at which
// it was lost.
func (b *observation) hasSettled(r *fleet.Instance, at moment) bool {
	return plan.Settled(r, at.settings, b.livedUntil(at.now))
}

// livedUntil is now, or the moment at which the instance was lost.
func (b *observation) livedUntil(now time.Time) time.Time {
	if b.loss != nil && b.loss.at.Before(now) {
		return b.loss.at
	}
	return now
}

// age is for how long an instance has lived, registered.
func (b *observation) age(r *fleet.Instance, now time.Time) time.Duration {
	if r.RegisteredAt == nil {
		return 0
	}
	return max(0, b.livedUntil(now).Sub(*r.RegisteredAt))
}

// began is when the create of an instance began that made its machine.
func (b *observation) began(r fleet.Instance) time.Time {
	if asked := b.attempted(r); asked.After(r.CreatedAt) {
		return asked
	}
	return r.CreatedAt
}

// judge notes of a running instance that it has settled.
func (b *observation) judge(r *fleet.Instance, at moment) {
	if !b.judged && !r.OnDemand && r.Phase == fleet.Running {
		b.judged = b.hasSettled(r, at)
	}
}

// living are those of a group's instances that live, registered, and were built as it
// builds them now: the survivors beside some that came to nothing.
func (o *observations) living(instances []plan.Instance, g fleet.Group, now time.Time, failed []failedCreate) (all []plan.Life) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ended := make(map[fleet.InstanceID]bool, len(failed))
	for _, f := range failed {
		ended[f.id] = true
	}
	for n := range instances {
		i := &instances[n]
		if i.OnDemand || i.RegisteredAt == nil || i.Hashes.Infra != g.Hashes.Infra || dead(i.VM) || ended[i.ID] {
			continue
		}
		if i.Phase != fleet.Running && (i.Phase != fleet.Draining || i.Drain != nil && plan.Failure(i.Drain.Reason)) {
			continue
		}
		b := o.observation(i.ID)
		all = append(all, plan.Life{ID: i.ID, Began: b.began(i.Instance), Age: b.age(&i.Instance, now)})
	}
	return all
}

// owed reports whether an instance had settled, is lost, and has had no replacement
// begun. Of a tombstone that is so only if its replacement waits.
func (b *observation) owed(i *plan.Instance, at moment) bool {
	return !i.OnDemand && b.awaitsReplacement(i) && b.hasSettled(&i.Instance, at)
}

// awaitsReplacement reports whether an instance is lost for certain, and its
// replacement is still to begin.
func (b *observation) awaitsReplacement(i *plan.Instance) bool {
	return b.lost(i.VM) && (i.Phase != fleet.Deleted || b.loss.awaited)
}

// judged has the instances that have settled count no more.
func (o *observations) judged(ids []fleet.InstanceID) {
	for _, id := range ids {
		o.with(id, func(b *observation) { b.judged = true })
	}
}

// stillborn returns those of a decision's actions that end an instance which has not
// settled, as failures of its create.
func (o *observations) stillborn(v plan.View, actions []plan.Action) (failed []failedCreate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, a := range actions {
		if a.ID == "" || !plan.Failure(a.Reason) {
			continue
		}
		i, b := find(v.Instances, a.ID), o.observation(a.ID)
		if i == nil || i.OnDemand || !i.Phase.Active() || b.judged {
			continue
		}
		b.judged = true
		if i.Hashes.Infra != v.Group.Hashes.Infra || b.hasSettled(&i.Instance, moment{now: v.Now, settings: v.Settings}) {
			continue
		}
		failed = append(failed, failedCreate{
			id: a.ID, began: b.began(i.Instance), at: v.Now, young: true, age: b.age(&i.Instance, v.Now),
			reason: reasonOf(a.Reason), message: b.stillborn(i, a, v),
		})
	}
	return failed
}

// stillborn says what became of an instance that has not settled.
func (b *observation) stillborn(i *plan.Instance, a plan.Action, v plan.View) string {
	why := b.withWhy(a.Reason)
	switch {
	case a.Reason == plan.ReasonRegistrationTimeout:
		return fmt.Sprintf("instance %s did not register within %v (server.garbage_collection.registration_timeout)",
			a.ID, v.Settings.RegistrationTimeout)
	case i.RegisteredAt == nil:
		return unregistered(a.ID, why)
	default:
		return fmt.Sprintf("the machine of instance %s came to nothing within %v of its registration (server.create_backoff.settle): %s",
			a.ID, v.Settings.Settle, why)
	}
}
