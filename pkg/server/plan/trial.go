package plan

import (
	"math"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
)

// trialsLeft is how many more creates the group's pace lets begin now: none before its
// moment has come, and no more than may be on trial at one time. Creates of every kind
// count, for scale-up, replacement and rotation alike, and those that are repeated.
//
// Owed creates are the exception, which scaleUp makes: the first replacement of one
// that had settled, and so was no failure, comes at once, before the moment has come and
// beyond what may be on trial. It is on trial itself from then on, which leaves less room
// for the others, and it is owed no longer: should it die young, its own replacement
// waits like any other.
func (d *decision) trialsLeft() int {
	p := d.view.Pace
	if !d.due(p.NotBefore) {
		return 0
	}
	if p.Trials <= 0 {
		return math.MaxInt
	}
	left := p.Trials - d.onTrial - d.resumed - d.creates
	if left <= 0 && p.Settling && !d.watched {
		d.watched = true
		d.wakeWhenProven()
	}
	return max(0, left)
}

// wakeWhenProven asks for another look when the first of those on trial has lasted.
func (d *decision) wakeWhenProven() {
	for n := range d.view.Instances {
		if i := &d.view.Instances[n]; i.Phase == fleet.Running && d.tried(i) {
			d.at(d.view.Pace.provenAt(&i.Instance, d.view.Settings))
		}
	}
}

// tried reports whether an instance is on trial. One that has come to nothing is until
// its record says that it leaves: only then is it known in the pace.
func (t *tally) tried(i *Instance) bool {
	p := t.view.Pace
	switch {
	case p.Trials <= 0 || i.OnDemand || i.Hashes.Outdated(t.view.Group.Hashes):
		return false
	case !p.Settling:
		return i.Phase == fleet.Pending && unmade(i) && i.Busy
	case i.Phase == fleet.Pending:
		return !unmade(i) || i.Busy || i.VM == VMAlive
	default:
		return i.Phase == fleet.Running && !reached(p.provenAt(&i.Instance, t.view.Settings), t.view.Now)
	}
}

// content reports whether a group that is bound by a pace is complete with instances
// that have settled, of which none is to be replaced: then nothing is to be created, and
// nothing is tried.
func (t *tally) content() bool {
	if t.view.Pace.Trials <= 0 || len(t.live) < t.size || t.view.Group.Disabled != "" || t.stale > 0 || t.urgents() > 0 || t.going > 0 {
		return false
	}
	return !slices.ContainsFunc(t.live, func(m member) bool {
		return !m.running || m.unhealthy || !Settled(&m.Instance.Instance, t.view.Settings, t.view.Now)
	})
}
