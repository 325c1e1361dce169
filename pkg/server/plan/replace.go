package plan

import "time"

// Running instances are replaced replacement first. Up to two replacements are urgent: they
// don't wait for the group to be calm, and don't count towards the shard's surge. These are
// the one that was requested or, if there is none, the oldest silent instance and the oldest
// one past the forced age. All others are stale: see surge.go.

// chooseReplaced selects the urgent replacements and marks the stale members.
func (d *decision) chooseReplaced() {
	if d.size == 0 {
		return
	}
	if !d.held() && !d.view.Group.RolloutPaused {
		d.markStale()
	}
	if m := d.oldest(func(m *member) bool { return m.asked && m.running }); m != nil {
		d.replaced, d.replacedReason = d.urgent(m), ReasonReplaceAsked
		return
	}
	if m := d.unhealthyReplacement(); m != nil {
		d.replaced, d.replacedReason = d.urgent(m), ReasonUnhealthy
	}
	if m := d.oldestAged(d.view.Settings.ForcedAge); m != nil && m != d.replaced && !d.held() {
		d.forced = d.urgent(m)
	}
}

// urgent removes a member from the stale ones and returns it.
func (t *tally) urgent(m *member) *member {
	if m.stale {
		m.stale = false
		t.stale--
	}
	return m
}

// urgents returns the number of urgent replacements.
func (t *tally) urgents() (n int) {
	if t.replaced != nil {
		n++
	}
	if t.forced != nil {
		n++
	}
	return n
}

// replace removes members whose replacement is ready. One that is silent, or whose replacement
// was requested, is removed once all other instances are ready or silent. All others work and
// can stay: they are removed only while the group is at size without them, counting only ready
// and settled instances. So a broken definition never takes down working instances.
func (d *decision) replace() {
	if d.urgents() == 0 && d.stale == 0 {
		return
	}
	able := d.able()
	d.replaceUrgent(&able)
	d.replaceBare(&able)
	if m := d.forced; m != nil && !m.going && d.spare(m, able) {
		able.release(m)
		d.leave(m, ReasonForcedExpiry)
	}
	for n := range d.live {
		m := &d.live[n]
		if !m.stale || m.going {
			continue
		}
		if !d.spare(m, able) {
			return
		}
		able.release(m)
		d.leave(m, d.staleReason(m))
	}
}

// replaceUrgent removes the urgently replaced member. If that has to stay, since others lack their
// files, it removes the first silent one that need not stay for them.
func (d *decision) replaceUrgent(a *able) {
	if m := d.replaced; m != nil && !m.going && d.standIn(m, a.ready) {
		a.release(m)
		d.leave(m, d.replacedReason)
		return
	}
	if d.bare == 0 || d.unhealthyReplacement() == nil {
		return
	}
	for n := range d.live {
		if m := &d.live[n]; m.unhealthy && !m.going && d.standIn(m, a.ready) {
			d.leave(m, ReasonUnhealthy)
			return
		}
	}
}

// replaceBare removes the members that lack their files and are to be replaced, the youngest first:
// so the replacements of a definition that failed leave before what they were to replace.
func (d *decision) replaceBare(a *able) {
	for n := len(d.live) - 1; n >= 0 && d.bare > 0; n-- {
		m := &d.live[n]
		if m.going || !m.bare || !m.stale && !m.asked {
			continue
		}
		if !d.standIn(m, a.proven) {
			if len(d.live)-d.going > d.size {
				d.at(a.provesAt)
			}
			return
		}
		reason := ReasonReplaceAsked
		if !m.asked {
			reason = d.staleReason(m)
		}
		d.leave(m, reason)
	}
}

// able counts the ready members that are not leaving.
type able struct {
	ready    int
	proven   int       // of ready: settled
	provesAt time.Time // when the next one settles; zero: none will
}

func (t *tally) able() (a able) {
	for n := range t.live {
		m := &t.live[n]
		if m.going || !m.ready {
			continue
		}
		a.ready++
		at := SettlesAt(m.Instance.Instance, t.view.Settings)
		if m.proven = reached(at, t.view.Now); m.proven {
			a.proven++
		} else if a.provesAt.IsZero() || at.Before(a.provesAt) {
			a.provesAt = at
		}
	}
	return a
}

// release subtracts a member that is about to leave.
func (a *able) release(m *member) {
	a.ready -= one(m.ready)
	a.proven -= one(m.proven)
}

// standIn reports whether the group is at size without m, counting the ready members, of which there
// are so many with m, and those that need not be ready.
func (t *tally) standIn(m *member, ready int) bool {
	return len(t.live)-t.going > t.size && ready-one(m.ready)+t.excused(m) >= t.size
}

// excused counts the members that need not be ready when m leaves: other silent ones and, if m is
// silent or bare itself, older bare ones, since a bare replacement replaces nothing. If m is bare,
// only older silent ones count, too.
func (t *tally) excused(m *member) (n int) {
	if t.unhealthy+t.bare == 0 {
		return 0
	}
	older := true
	for i := range t.live {
		switch o := &t.live[i]; {
		case o == m:
			older = false
		case o.going:
		case o.unhealthy:
			n += one(older || !m.bare)
		case o.bare:
			n += one(older && (m.bare || m.unhealthy))
		}
	}
	return n
}

// spare reports whether the group is at size without m, counting proven members only. If it
// only lacks settled ones, it requests a wake-up for when the next one settles.
func (d *decision) spare(m *member, a able) bool {
	if a.proven-one(m.proven) >= d.size {
		return true
	}
	if len(d.live)-d.going > d.size {
		d.at(a.provesAt)
	}
	return false
}

// leave removes a member and marks it as going.
func (d *decision) leave(m *member, reason string) {
	d.remove(m.Instance, reason)
	m.going = true
	d.going++
}

// unhealthyReplacement returns the oldest silent member, or nil if the replaced instances that
// are still leaving use up the group's surge.
func (t *tally) unhealthyReplacement() *member {
	if t.unhealthy == 0 || t.replacing+t.busy >= t.own {
		return nil
	}
	return t.oldest(func(m *member) bool { return m.unhealthy })
}

// oldest returns the oldest member for which ok holds, or nil.
func (t *tally) oldest(ok func(*member) bool) *member {
	for n := range t.live {
		if m := &t.live[n]; ok(m) {
			return m
		}
	}
	return nil
}

func one(ok bool) int {
	if ok {
		return 1
	}
	return 0
}
