package fleet

import "time"

// Moment is a time in a record.
type Moment struct {
	At       *time.Time // nil: the record has none
	Deadline bool       // it may be in the future
}

// Moments returns the times of an instance, always as many and in the same order. What they point
// to may be changed.
func (i *Instance) Moments() []Moment {
	all := []Moment{{At: &i.CreatedAt}, {At: i.RegisteredAt}, {At: i.RemovalAskedAt}, {At: i.DeletedAt}, {At: i.Provider.CreateAttemptedAt}}
	if i.Drain == nil {
		return append(all, Moment{}, Moment{})
	}
	return append(all, Moment{At: i.Drain.AckedAt}, Moment{At: &i.Drain.DeleteAt, Deadline: true})
}

// Measure makes the monotonic clock measure the times of an instance, so that a step of the wall
// clock changes no age and no deadline from now on. Times that a known version has, too, are
// measured as they are there.
func (i *Instance) Measure(known Instance, now time.Time) {
	before := known.Moments()
	for n, m := range i.Moments() {
		if m.At == nil {
			continue
		}
		if was := before[n].At; was != nil && was.Equal(*m.At) {
			*m.At = *was
		}
		*m.At = measured(*m.At, now)
	}
}

// measured returns a time with a reading of the monotonic clock, as now has one.
func measured(at, now time.Time) time.Time {
	if read := at != at.Round(0); read {
		return at
	}
	if with := now.Add(at.Sub(now.Round(0))); with.Equal(at) {
		return with
	}
	return at // centuries away
}

// InUTC returns a copy with the times in UTC, as objects have them, and without readings of the
// monotonic clock.
func (i Instance) InUTC() Instance {
	i = i.Clone()
	for _, m := range i.Moments() {
		if m.At != nil {
			*m.At = m.At.UTC()
		}
	}
	return i
}
