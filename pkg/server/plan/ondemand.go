package plan

import "github.com/nstance/nstance/pkg/fleet"

// onDemand decides about a pending or running on-demand instance. It does not count towards
// the group's size and is not replaced. It is removed when its machine is lost, its removal is
// requested, its age is reached, or its group is removed. A silent agent is no reason: the
// owner may still use the machine.
func (d *decision) onDemand(i *Instance) {
	switch reason := d.onDemandEnd(i); {
	case reason != "":
		d.remove(i, reason)
	case i.Busy || d.failed(i):
	case d.view.Group.Disabled != "":
	case d.failPending(i):
	case unmade(i) && d.due(i.RetryAt):
		// Failures of the group's own creates don't delay it: it may have another
		// instance type, and it has its own back-off.
		d.act(Action{Kind: Resume, ID: i.ID, Reason: ReasonNotCreated})
	}
}

// failed removes an instance that has had no machine for too long, whatever the state of its
// group. If there is a machine, the registration timeout applies instead.
func (d *decision) failed(i *Instance) bool {
	timeout := d.view.Settings.CreateTimeout
	if timeout <= 0 || !unmade(i) || i.VM == VMAlive || !d.due(i.CreatedAt.Add(timeout)) {
		return false
	}
	d.drop(i, ReasonCreateTimeout)
	return true
}

// onDemandEnd returns why an on-demand instance is to be removed; empty if it is not. A
// requested removal applies in a disabled group too, since it does not need the definition.
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
	case age > 0 && i.Phase == fleet.Running && d.due(born(i.Instance).Add(age)):
		return ReasonOnDemandExpired
	default:
		return ""
	}
}
