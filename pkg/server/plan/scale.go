package plan

// scaleDown removes the members beyond the size in this order: those whose removal was
// requested, the unhealthy, the pending, those that lack their files, then the oldest; while the
// rollout is paused the youngest, which may be replacements that have begun. A VM whose record can't be
// read may be an on-demand one, so it takes no place from one of the last three. Instances of the
// leaving list are doomed and not counted here. Members that are leaving, or busy and possibly
// leaving, count as removed.
func (d *decision) scaleDown() {
	if d.held() {
		return
	}
	reason := ReasonScaleDown
	if d.view.Group.Removed {
		reason = ReasonGroupRemoved
	}
	filled := d.view.Filled
	for _, class := range []struct {
		has  func(*member) bool
		size int
	}{
		{func(m *member) bool { return m.asked }, d.size},
		{func(m *member) bool { return m.unhealthy }, d.size},
		{func(m *member) bool { return !m.running }, d.size + filled},
		{func(m *member) bool { return m.bare }, d.size + filled},
		{func(*member) bool { return true }, d.size + filled},
	} {
		for n := 0; n < len(d.live) && len(d.live)-d.going > class.size+d.kept(); n++ {
			m := &d.live[n]
			if d.view.Group.RolloutPaused {
				m = &d.live[len(d.live)-1-n]
			}
			if !m.going && class.has(m) {
				d.scaleOut(m, reason)
			}
		}
	}
}

// scaleOut removes a member without replacing it.
func (d *decision) scaleOut(m *member, reason string) {
	d.leave(m, reason)
	d.scaled++
	d.urgent(m) // no longer stale
	if m == d.replaced {
		d.replaced = nil
	}
	if m == d.forced {
		d.forced = nil
	}
}

// scaleUp creates the missing instances: the immediate ones at once, the others as far as
// the group's pace allows.
func (d *decision) scaleUp() {
	missing := max(0, d.size+d.urgents()+d.granted()-len(d.live))
	d.create(min(missing, d.immediate), true)
	for missing -= d.creates; missing > 0 && d.probationLeft() > 0; {
		tried := min(missing, d.probationLeft())
		d.create(tried, false)
		missing -= tried
	}
	d.starved = d.starves()
}

// create adds actions that create count instances.
func (d *decision) create(count int, immediate bool) {
	for range count {
		reason := ReasonScaleUp
		if len(d.live)+d.creates >= d.size {
			reason = ReasonReplacement
		}
		d.act(Action{Kind: Create, Reason: reason, Immediate: immediate})
		d.creates++
	}
}
