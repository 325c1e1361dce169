package plan

import "time"

// Stale instances work, but are too old or were built from another definition than the
// group has now. They are replaced by as many at a time as the group's surge says and
// the shard's lets it, while the group has nothing else to cope with. What has been
// begun goes on whatever happens meanwhile: each of those that came stands in for one
// that can leave.

// markStale finds the stale ones. Members are in the order of their age, so the first
// that is young enough ends the look at ages, and is the one that comes of age next.
func (d *decision) markStale() {
	age := d.view.Settings.staleAge()
	old := age > 0
	for n := range d.live {
		m := &d.live[n]
		if !m.running || m.going {
			continue
		}
		old = old && d.aged(m, age)
		if old || m.outdated {
			m.stale = true
			d.stale++
		}
	}
}

// staleAge is from what age on instances are stale; not positive: none is for its age.
func (s Settings) staleAge() time.Duration {
	if s.ForcedAge > 0 && (s.EligibleAge <= 0 || s.ForcedAge < s.EligibleAge) {
		return s.ForcedAge
	}
	return s.EligibleAge
}

// staleReason says why a stale one leaves.
func (d *decision) staleReason(m *member) string {
	switch s := d.view.Settings; {
	case d.aged(m, s.ForcedAge):
		return ReasonForcedExpiry
	case d.aged(m, s.EligibleAge):
		return ReasonExpired
	default:
		return ReasonDrift
	}
}

// calm reports whether replacements of stale ones may begin: the group is complete,
// nobody is silent, and fewer are on their way out than may be beyond the size.
func (t *tally) calm() bool {
	return len(t.live) >= t.size && t.unhealthy == 0 && t.draining+t.busy < t.own
}

// wanted is how many instances beyond the size the group itself would have now for its
// stale ones. Those that are on their way out are beyond the size too.
func (t *tally) wanted() int {
	if t.stale == 0 || !t.calm() {
		return 0
	}
	return max(0, min(t.stale, t.own-t.draining-t.busy-t.urgents()))
}

// granted is how many of them the shard lets it have.
func (t *tally) granted() int { return max(0, min(t.wanted(), t.view.Surge-t.surging)) }

// kept is how many instances beyond the size are not too many: each has, or will have,
// one that leaves for it.
func (t *tally) kept() int { return max(t.urgents(), min(t.own, t.urgents()+t.stale)) }

// used is how many instances beyond the size there are once the actions are carried
// out, for stale ones that are there or are leaving.
func (t *tally) used() int {
	return min(t.own, max(0, t.present-t.scaled+t.creates-t.size-t.urgents())) + t.surging
}

// starves reports whether the group would make more if the shard let it: not if it is
// held back by its own failures.
func (d *decision) starves() bool {
	more := d.size + d.urgents() + d.wanted() - len(d.live) - d.creates
	return more > 0 && d.granted() < d.wanted() && d.trialsLeft() > 0
}
