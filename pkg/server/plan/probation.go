package plan

import (
	"math"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
)

// probationLeft returns how many more creates the group's pace allows now: none before
// NotBefore, and no more than may be on probation at one time. All creates count: scale-up,
// replacement, rotation and retries.
//
// Immediate creates are the exception, made by scaleUp: the first replacement of an instance
// that had settled, which is no failure, ignores both limits. It is on probation itself then
// and so reduces what is left, and it is immediate only once: if it dies young, its own
// replacement waits like any other.
func (d *decision) probationLeft() int {
	p := d.view.Pace
	if !d.due(p.NotBefore) {
		return 0
	}
	if p.Probation <= 0 {
		return math.MaxInt
	}
	left := p.Probation - d.inProbation - d.resumed - d.creates
	if left <= 0 && p.Settling && !d.watched {
		d.watched = true
		d.wakeWhenProven()
	}
	return max(0, left)
}

// wakeWhenProven requests a wake-up for when the first probation ends.
func (d *decision) wakeWhenProven() {
	for n := range d.view.Instances {
		if i := &d.view.Instances[n]; i.Phase == fleet.Running && d.onProbation(i) {
			d.at(d.view.Pace.provenAt(i.Instance, d.view.Settings))
		}
	}
}

// onProbation reports whether an instance is on probation. A failed instance stays on probation
// until its record says that it leaves, since only then the pace accounts for it.
func (t *tally) onProbation(i *Instance) bool {
	p := t.view.Pace
	switch {
	case p.Probation <= 0 || i.OnDemand || i.Hashes.Outdated(t.view.Group.Hashes):
		return false
	case !p.Settling:
		return i.Phase == fleet.Pending && unmade(i) && i.Busy
	case i.Phase == fleet.Pending:
		return !unmade(i) || i.Busy || i.VM == VMAlive
	default:
		return i.Phase == fleet.Running && !reached(p.provenAt(i.Instance, t.view.Settings), t.view.Now)
	}
}

// converged reports whether a group with a pace is at size, and all its instances have settled
// and none is to be replaced.
func (t *tally) converged() bool {
	if t.view.Pace.Probation <= 0 || len(t.live) < t.size || t.view.Group.Disabled != "" || t.stale > 0 || t.urgents() > 0 || t.going > 0 {
		return false
	}
	return !slices.ContainsFunc(t.live, func(m member) bool {
		return !m.running || m.unhealthy || !Settled(m.Instance.Instance, t.view.Settings, t.view.Now)
	})
}
