package ledger

import "time"

// timed is implemented by kinds of records with times that decisions compare to this host's clock.
// known is the version in memory, or zero. Both methods may change what v points to.
type timed[V any] interface {
	// arrived returns a record that was read, without times after now, unless this writer wrote it:
	// another host, whose clock was ahead, wrote them, and they would put off what they begin.
	arrived(v, known V, now time.Time, writer string) V
	// measured returns a record whose times the monotonic clock measures.
	measured(v, known V, now time.Time) V
}

var _ timed[storedInstance] = (*instances)(nil)

// arrived implements timed.
func (x *instances) arrived(v, known storedInstance, now time.Time, writer string) storedInstance {
	for _, m := range v.Moments() {
		if m.At != nil && !m.Deadline && m.At.After(now) && v.Writer != writer {
			*m.At = now
		}
	}
	return x.measured(v, known, now)
}

// measured implements timed.
func (x *instances) measured(v, known storedInstance, now time.Time) storedInstance {
	v.Measure(known.record(), now)
	return v
}
