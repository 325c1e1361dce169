package plan

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

const (
	// LeastEarly is how many instances any group may lose early, whatever its size.
	LeastEarly = 3
	// EarlyFor is for how long an early end counts.
	EarlyFor = 24 * time.Hour
)

// MostEarly returns how many early ends count at most in a group of the given size, so that a group
// that recovers makes them good.
func MostEarly(size int) int { return max(size, LeastEarly+1) }

// keepEarly counts the tombstones of instances that ended early, if the group's creates go through a
// window for that: its next leader learns from them, so they are kept for as long as they count.
func (d *decision) keepEarly() {
	if !d.view.Pace.Settling || d.size == 0 {
		return
	}
	for n := range d.view.Instances {
		d.early += one(d.endedEarly(&d.view.Instances[n]))
	}
}

// retention returns for how long a tombstone is kept: of those that ended early the newest, as many
// as count. The instances are in the order of their creation.
func (d *decision) retention(i *Instance) time.Duration {
	if d.early == 0 || !d.endedEarly(i) {
		return d.view.Settings.DeletedRetention
	}
	d.early--
	if d.early >= MostEarly(d.size) {
		return d.view.Settings.DeletedRetention
	}
	return max(d.view.Settings.DeletedRetention, EarlyFor)
}

// endedEarly reports whether a tombstone is of an instance of the group's current definition that
// ended before it had settled, and had not announced that.
func (t *tally) endedEarly(i *Instance) bool {
	if i.Phase != fleet.Deleted || i.OnDemand || i.DeletedAt == nil || i.Hashes.Infra != t.view.Group.Hashes.Infra {
		return false
	}
	lost := LostBy(i.Instance, t.view.Group.DrainTimeout, t.view.Now)
	return Failure(i.Reason) && Word(i.Reason) != ReasonCreateFailed && !Settled(i.Instance, t.view.Settings, lost)
}

// LostBy returns the latest time at which an instance may have been lost, by its record: the start of
// its drain, by the group's current drain timeout, or its deletion; now if it has neither.
func LostBy(i *fleet.Instance, drainTimeout time.Duration, now time.Time) time.Time {
	at := now
	if i.DeletedAt != nil {
		at = *i.DeletedAt
	}
	if i.Drain != nil {
		if began := i.Drain.DeleteAt.Add(-drainTimeout); began.Before(at) {
			at = began
		}
	}
	return at
}
