package plan

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// oldestAged returns the oldest running member if it has reached the age; otherwise nil.
func (d *decision) oldestAged(age time.Duration) *member {
	if age <= 0 {
		return nil
	}
	m := d.oldest(func(m *member) bool { return m.running })
	if m == nil || !d.aged(m, age) {
		return nil
	}
	return m
}

// aged reports whether a member has reached the age, and requests a wake-up for when it will.
func (d *decision) aged(m *member, age time.Duration) bool {
	return age > 0 && d.due(born(m.Instance.Instance).Add(age))
}

// born returns when an instance was created, from which its age counts.
func born(i *fleet.Instance) time.Time {
	if i.CreatedAt.IsZero() {
		return i.ID.Time()
	}
	return i.CreatedAt
}
