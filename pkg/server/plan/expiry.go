package plan

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// forcedExpiry names the oldest instance once it has reached the forced age,
// whatever else is going on in the group.
func (d *decision) forcedExpiry() (*member, string) {
	return d.aged(d.view.Settings.ForcedAge), ReasonForcedExpiry
}

// opportunisticExpiry names the oldest instance once it is old enough, when the
// group has nothing else to cope with.
func (d *decision) opportunisticExpiry() (*member, string) {
	m := d.aged(d.view.Settings.EligibleAge)
	if !d.calm() {
		return nil, ""
	}
	return m, ReasonExpired
}

// aged returns the oldest running member if it has the age. Age is the id's.
func (d *decision) aged(age time.Duration) *member {
	if age <= 0 {
		return nil
	}
	m := d.oldest(running)
	if m == nil || !d.due(m.ID.Time().Add(age)) {
		return nil
	}
	return m
}

// calm reports whether the group is complete and nothing is on its way out.
func (d *decision) calm() bool {
	return len(d.live) >= d.size && d.unhealthy == 0 && d.draining == 0 && !d.replacing
}

func running(m *member) bool { return m.Phase == fleet.Running }
