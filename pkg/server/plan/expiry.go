package plan

import "time"

// oldestAged returns the oldest running member if it has the age. Age is the id's.
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

// aged reports whether a member has the age, and asks to be woken when it has not.
func (d *decision) aged(m *member, age time.Duration) bool {
	return age > 0 && d.due(m.ID.Time().Add(age))
}
