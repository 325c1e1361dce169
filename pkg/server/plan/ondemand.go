package plan

import "github.com/nstance/nstance/pkg/fleet"

// onDemand decides about a pending or running instance that was asked for by
// itself. It fills no place of the group and is not replaced; it goes when its
// machine is lost, when it is asked to, when its age is reached, and with its
// group. Silence is no reason: its owner may still be at work on it.
func (d *decision) onDemand(i *Instance) {
	switch reason := d.onDemandEnd(i); {
	case reason != "":
		d.remove(i, reason)
	case i.Busy || d.failed(i):
	case d.view.Group.Disabled != "":
	case d.giveUp(i):
	case unmade(i) && d.due(i.RetryAt):
		// Failures of the group's own creates don't hold it back: it may have
		// been asked for with another instance type, and it has a pace of its
		// own.
		d.act(Action{Kind: Resume, ID: i.ID, Reason: ReasonNotCreated})
	}
}

// failed ends an instance for which there was no machine for too long, whatever
// became of its group. A machine that is there is given its time to register.
func (d *decision) failed(i *Instance) bool {
	timeout := d.view.Settings.CreateTimeout
	if timeout <= 0 || !unmade(i) || i.VM == VMAlive || !d.due(i.CreatedAt.Add(timeout)) {
		return false
	}
	d.drop(i, ReasonCreateTimeout)
	return true
}

// onDemandEnd says why an on-demand instance is to go; empty when it is not.
// That somebody asked counts for a disabled group too, since nothing of its
// definition is needed for it.
func (d *decision) onDemandEnd(i *Instance) string {
	if i.RemovalAskedAt != nil {
		return ReasonDeleteAsked
	}
	if d.view.Group.Disabled != "" {
		return ""
	}
	c := ConditionOf(i, d.view.Settings, d.view.Takeover, d.view.Now)
	age := d.view.Settings.OnDemandAge
	switch {
	case c.Lost:
		return c.Reason
	case d.view.Group.Removed:
		return ReasonGroupRemoved
	case age > 0 && i.Phase == fleet.Running && d.due(i.ID.Time().Add(age)):
		return ReasonOnDemandExpired
	default:
		return ""
	}
}
