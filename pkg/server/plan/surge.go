package plan

import "time"

// Stale instances work, but are too old or were built from another definition than the
// group has now. They are replaced within the surge of the group and of the shard, while the
// group is calm. Replacements in progress are finished in any case: each replacement that
// came up lets a stale instance be removed. While the rollout is paused, no instance is stale, so
// that replacements in progress are surplus.

// markStale marks the stale members. Members are sorted by age, so the first one that is
// young enough ends the comparison of ages and is the next to reach the age.
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
			m.stale, m.obsolete = true, true
			d.stale++
			d.obsolete++
		}
	}
}

// staleAge returns the age from which instances are stale; if it is not positive, none is
// stale by age.
func (s Settings) staleAge() time.Duration {
	if s.ForcedAge > 0 && (s.EligibleAge <= 0 || s.ForcedAge < s.EligibleAge) {
		return s.ForcedAge
	}
	return s.EligibleAge
}

// staleReason returns why a stale member is removed.
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

// calm reports whether replacements of stale members may begin: the group is at size, no
// member is silent, and fewer are leaving than the group's surge.
func (t *tally) calm() bool {
	return len(t.live) >= t.size && t.unhealthy == 0 && t.draining+t.busy < t.own
}

// wanted returns how many instances beyond the size the group would create for its stale
// members by its own surge. Leaving instances count towards that surge too.
func (t *tally) wanted() int {
	if t.stale == 0 || !t.calm() {
		return 0
	}
	return max(0, min(t.stale, t.own-t.draining-t.busy-t.urgents()))
}

// granted returns how many of the wanted instances the shard's surge allows.
func (t *tally) granted() int { return max(0, min(t.wanted(), t.view.Surge-t.surging)) }

// kept returns how many instances beyond the size scaleDown leaves alone: each replaces
// a member that is leaving or will leave.
func (t *tally) kept() int { return max(t.urgents(), min(t.own, t.urgents()+t.stale)) }

// used returns how many instances beyond the size there are for rotation and expiry once the
// actions are carried out.
func (t *tally) used() int {
	return min(t.own, max(0, t.present-t.scaled+t.creates-t.size-t.urgents())) + t.surging
}

// starves reports whether the group would create more if the shard's surge allowed it. False
// if its own pace holds it back.
func (d *decision) starves() bool {
	more := d.size + d.urgents() + d.wanted() - len(d.live) - d.creates
	return more > 0 && d.granted() < d.wanted() && d.probationLeft() > 0
}
