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

// assess weighs an instance that fills a place of the group.
func (d *decision) assess(i *Instance, c Condition, going bool) member {
	m := member{Instance: i, going: going, unhealthy: c.Reason != ""}
	if going {
		d.going++
	}
	if m.unhealthy {
		d.unhealthy++
	}
	h := &i.Health
	m.ready = i.Phase == fleet.Running && !m.unhealthy && h.Connected && !h.LastReportAt.IsZero() && h.ShuttingDownAt.IsZero()
	return m
}
