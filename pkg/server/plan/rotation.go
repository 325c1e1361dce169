package plan

import (
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// rotation says how many obsolete members stay once the actions are carried out, and what the next of them
// awaits. It follows the rules of surge.go and replace.go, and decides nothing.
func rotation(t *tally) (r fleet.Rotation) {
	if t.obsolete == 0 {
		return r
	}
	staying, leaving := 0, t.draining
	for n := range t.live {
		switch m := &t.live[n]; {
		case !m.going:
			staying++
			r.Left += one(m.obsolete)
		case m.running:
			leaving++
		case m.Busy:
			staying++ // its create is in progress
		}
	}
	if r.Left > 0 {
		r.Awaits, r.Until = awaits(t, staying, leaving)
	}
	return r
}

// awaits returns what the next obsolete member awaits. So many members stay, and so many leave.
func awaits(t *tally, staying, leaving int) (what string, until time.Time) {
	switch {
	case staying < t.size:
		what = fleet.AwaitsSize
	case staying > t.size:
		return awaitsOthers(t)
	case t.unhealthy > 0:
		what = fleet.AwaitsSilent
	case leaving >= t.own || leaving > 0 && t.creates == 0 && t.granted() == 0:
		what = fleet.AwaitsLeaving
	case t.view.Pace.Probation > 0:
		what = fleet.AwaitsCreates
	case t.creates == 0 && t.granted() == 0:
		what = fleet.AwaitsShardSurge
	default:
		what = fleet.AwaitsReplacement
	}
	return what, time.Time{}
}

// awaitsOthers returns what the next obsolete member awaits of the others, which are more than the size.
func awaitsOthers(t *tally) (what string, until time.Time) {
	next, wanted := nextObsolete(t)
	ready, settle := 0, []time.Time(nil)
	for n := range t.live {
		m := &t.live[n]
		if m == next || m.going || !m.ready {
			continue
		}
		switch at := SettlesAt(m.Instance.Instance, t.view.Settings); {
		case at.IsZero():
			continue
		case at.After(t.view.Now):
			settle = append(settle, at)
		}
		ready++
	}
	missing := wanted - (ready - len(settle)) // settled ones
	switch {
	case missing > 0 && missing <= len(settle):
		slices.SortFunc(settle, time.Time.Compare)
		return fleet.AwaitsSettled, settle[missing-1]
	case t.unhealthy > 0:
		return fleet.AwaitsSilent, time.Time{}
	default:
		return fleet.AwaitsReplacement, time.Time{}
	}
}

// nextObsolete returns the obsolete member that leaves next, in the order of replace, and how many others
// have to be ready and settled before. One that is replaced urgently awaits ready ones only, and comes last
// here, since it leaves as soon as these are there.
func nextObsolete(t *tally) (next *member, settled int) {
	for n := len(t.live) - 1; n >= 0 && t.bare > 0; n-- {
		if m := &t.live[n]; m.bare && m.stale && !m.going {
			return m, t.size - t.excused(m)
		}
	}
	if t.forced != nil && !t.forced.going {
		return t.forced, t.size
	}
	if m := t.oldest(func(m *member) bool { return m.stale && !m.going }); m != nil {
		return m, t.size
	}
	return t.replaced, t.size
}
