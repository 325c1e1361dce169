package plan

// scaleDown removes what exceeds the size: after those that were asked to leave
// (they are doomed, and not counted here) those that were asked to be replaced,
// the unhealthy ones, those that never came up, then the oldest. An instance
// that is on its way out, or busy and perhaps so, is taken to be one of them.
func (d *decision) scaleDown() {
	if d.held() {
		return
	}
	reason := ReasonScaleDown
	if d.view.Group.Removed {
		reason = ReasonGroupRemoved
	}
	for _, class := range []func(*member) bool{
		func(m *member) bool { return m.asked },
		func(m *member) bool { return m.unhealthy },
		func(m *member) bool { return !m.running },
		func(*member) bool { return true },
	} {
		for n := 0; n < len(d.live) && len(d.live)-d.going > d.size+d.kept(); n++ {
			if m := &d.live[n]; !m.going && class(m) {
				d.scaleOut(m, reason)
			}
		}
	}
}

// scaleOut lets a member go for which nobody is to come.
func (d *decision) scaleOut(m *member, reason string) {
	d.leave(m, reason)
	d.scaled++
	d.urgent(m) // it is not stale any more either
	if m == d.replaced {
		d.replaced = nil
	}
	if m == d.forced {
		d.forced = nil
	}
}

// scaleUp creates what is missing, as far as the pace of the group's creates lets it:
// what is owed at once, and as much of the rest as may be tried beside it.
func (d *decision) scaleUp() {
	missing := max(0, d.size+d.urgents()+d.granted()-len(d.live))
	d.create(min(missing, d.owed), true)
	for missing -= d.creates; missing > 0 && d.trialsLeft() > 0; {
		tried := min(missing, d.trialsLeft())
		d.create(tried, false)
		missing -= tried
	}
	d.starved = d.starves()
}

// create makes new instances.
func (d *decision) create(count int, owed bool) {
	for range count {
		reason := ReasonScaleUp
		if len(d.live)+d.creates >= d.size {
			reason = ReasonReplacement
		}
		d.act(Action{Kind: Create, Reason: reason, Owed: owed})
		d.creates++
	}
}
