package plan

import "github.com/nstance/nstance/pkg/fleet"

// doom says why an active instance can't be counted on any more; empty when it
// can. The doomed are replaced all at once, since nothing is gained by waiting.
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

// assess weighs a member in its place. Returned by value, which for so many fields goes by
// memory, it made a decision a fifth slower.
func (t *tally) assess(m *member, unhealthy, going bool) {
	m.unhealthy, m.going = unhealthy, going
	t.unhealthy += one(unhealthy)
	t.going += one(going)
	m.running = m.Phase == fleet.Running
	m.asked = m.RemovalAskedAt != nil
	m.outdated = m.Hashes.Outdated(t.view.Group.Hashes)
	h := &m.Health
	m.ready = m.running && !m.unhealthy && h.Connected && !h.LastReportAt.IsZero() && h.ShuttingDownAt.IsZero()
}
