package plan

import "time"

// A group replaces instances that still run replacement first. Up to two of them can't
// wait for the group to be calm, and get an instance more each without the shard being
// asked: the one that somebody asked for; or, else, the oldest that is silent and the
// oldest that has reached the forced age. All others are stale: see surge.go.

// chooseReplaced picks those that are replaced next.
func (d *decision) chooseReplaced() {
	if d.size == 0 {
		return
	}
	if !d.held() {
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

// urgent takes a member out of those that can wait.
func (t *tally) urgent(m *member) *member {
	if m.stale {
		m.stale = false
		t.stale--
	}
	return m
}

// urgents is how many have a replacement that the shard is not asked for.
func (t *tally) urgents() (n int) {
	if t.replaced != nil {
		n++
	}
	if t.forced != nil {
		n++
	}
	return n
}

// replace lets those go whose replacement has come. One that was asked for or is silent
// goes once every other instance that is not silent itself is ready. All others work,
// and nothing is lost while they stay: they leave only as far as the size is there
// without them of instances that are ready and have settled. So a definition from which
// nothing comes up that lasts costs nobody who works.
func (d *decision) replace() {
	if d.urgents() == 0 && d.stale == 0 {
		return
	}
	able := d.able()
	if m := d.replaced; m != nil && !m.going && d.standIn(m, able.ready) {
		able.release(m)
		d.leave(m, d.replacedReason)
	}
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

// able counts those of a group that don't go.
type able struct {
	ready    int
	proven   int       // of ready: they have settled
	provesAt time.Time // when the next of them has; zero: none will
}

func (t *tally) able() (a able) {
	for n := range t.live {
		m := &t.live[n]
		if m.going || !m.ready {
			continue
		}
		a.ready++
		at := SettlesAt(&m.Instance.Instance, t.view.Settings)
		if m.proven = reached(at, t.view.Now); m.proven {
			a.proven++
		} else if a.provesAt.IsZero() || at.Before(a.provesAt) {
			a.provesAt = at
		}
	}
	return a
}

// release takes out one that is about to leave.
func (a *able) release(m *member) {
	a.ready -= one(m.ready)
	a.proven -= one(m.proven)
}

// standIn reports whether the group is complete without a member, and all others that
// are not silent are ready.
func (t *tally) standIn(m *member, ready int) bool {
	return len(t.live)-t.going > t.size && ready-one(m.ready) >= t.size-t.unhealthy+one(m.unhealthy)
}

// spare reports whether the size is there of proven ones without a member, and asks to
// be woken when one more of them has settled, if that is all that it takes.
func (d *decision) spare(m *member, a able) bool {
	if a.proven-one(m.proven) >= d.size {
		return true
	}
	if len(d.live)-d.going > d.size {
		d.at(a.provesAt)
	}
	return false
}

// leave removes a member and remembers that it goes.
func (d *decision) leave(m *member, reason string) {
	d.remove(m.Instance, reason)
	m.going = true
	d.going++
}

// unhealthyReplacement names the oldest instance whose machine runs but which is silent,
// unless as many as the group may have at one time are still leaving.
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
