package reconcile

import (
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// This file tells what became of each instance's create: whether the instance lived
// until it had settled. Each counts once.

// hasSettled reports whether an instance had settled by now, or by the moment at which
// it was lost.
func (b *observation) hasSettled(r *fleet.Instance, at moment) bool {
	now := at.now
	if b.loss != nil && b.loss.at.Before(now) {
		now = b.loss.at
	}
	return plan.Settled(r, at.settings, now)
}

// judge reports whether a running instance is seen to have settled for the first time.
func (b *observation) judge(r *fleet.Instance, at moment) bool {
	if b.judged || r.OnDemand || r.Phase != fleet.Running || !b.hasSettled(r, at) {
		return false
	}
	b.judged = true
	return true
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
		f := failedCreate{id: a.ID, began: i.CreatedAt, at: v.Now, young: true, reason: reasonOf(a.Reason), message: b.stillborn(i, a, v)}
		if asked := b.attempted(i.Instance); asked.After(f.began) {
			f.began = asked
		}
		failed = append(failed, f)
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
