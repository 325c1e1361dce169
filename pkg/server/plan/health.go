package plan

import "github.com/nstance/nstance/pkg/fleet"

// doom returns why an active instance is to be removed at once; empty if it is not. All
// doomed instances are replaced together, since waiting gains nothing.
func (d *decision) doom(i *Instance, c Condition) string {
	if c.Lost {
		return c.Reason
	}
	d.at(c.Worsens)
	if d.leaving[i.ID] {
		return ReasonLeaving
	}
	return ""
}

// assess sets the fields of a member. It modifies the member in place: returning it by value
// made decisions 20 % slower.
func (t *tally) assess(m *member, unhealthy, going bool) {
	m.unhealthy, m.going = unhealthy, going
	t.unhealthy += one(unhealthy)
	t.going += one(going)
	m.running = m.Phase == fleet.Running
	m.asked = m.RemovalAskedAt != nil
	m.outdated = m.Hashes.Outdated(t.view.Group.Hashes)
	h := &m.Health
	m.bare = m.running && !m.unhealthy && h.WithoutFiles && t.view.Group.AwaitsFiles()
	t.bare += one(m.bare)
	m.ready = m.running && !m.unhealthy && !m.bare && h.Connected && !h.LastReportAt.IsZero() && h.ShuttingDownAt.IsZero()
}
