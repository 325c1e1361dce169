package plan

import "time"

// oldestAged returns the oldest running member if it has reached the age, which counts from
// the time of its id; otherwise nil.
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
	return age > 0 && d.due(m.ID.Time().Add(age))
}
