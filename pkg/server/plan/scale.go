package plan

import "github.com/nstance/nstance/pkg/fleet"

// scaleDown removes what exceeds the size: after those that were asked to leave
// (they are doomed, and not counted here) those that were asked to be replaced,
// the unhealthy ones, those that never came up, then the oldest. An instance
// that is on its way out, or busy and perhaps so, is taken to be one of them.
func (d *decision) scaleDown() {
	excess := len(d.live) - d.going - d.target()
	if excess <= 0 {
		return
	}
	reason := ReasonScaleDown
	if d.view.Group.Removed {
		reason = ReasonGroupRemoved
	}
	for _, class := range []func(*member) bool{
		asked,
		func(m *member) bool { return m.unhealthy },
		func(m *member) bool { return m.Phase == fleet.Pending },
		func(*member) bool { return true },
	} {
		for n := 0; n < len(d.live) && excess > 0; n++ {
			m := &d.live[n]
			if m.going || !class(m) {
				continue
			}
			d.leave(m, reason)
			excess--
			if m == d.replaced { // nothing is to take its place any more
				d.replaced = nil
				excess++
			}
		}
	}
}

// scaleUp creates what is missing, unless creates are held back after failures.
func (d *decision) scaleUp() {
	missing := d.target() - len(d.live)
	if missing <= 0 || !d.due(d.view.CreateNotBefore) {
		return
	}
	for n := range missing {
		reason := ReasonScaleUp
		if len(d.live)+n >= d.size {
			reason = ReasonReplacement
		}
		d.act(Action{Kind: Create, Reason: reason})
	}
}
