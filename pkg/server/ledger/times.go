package ledger

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// timed is implemented by kinds of records with times that decisions compare to this host's clock.
type timed[V any] interface {
	// arrived returns a record that was read, without times after that, unless this writer wrote it:
	// another host, whose clock was ahead, wrote them, and they would put off what they begin.
	arrived(v V, now time.Time, writer string) V
}

var _ timed[storedInstance] = (*instances)(nil)

// arrived implements timed. The deadline of a drain may be in the future.
func (x *instances) arrived(v storedInstance, now time.Time, writer string) storedInstance {
	if v.Writer == writer {
		return v
	}
	for _, at := range timesOf(&v.Instance) {
		if at != nil && at.After(now) {
			*at = now.UTC().Round(0)
		}
	}
	return v
}

// timesOf returns the times of what has happened to an instance; nil where it has not.
func timesOf(i *fleet.Instance) []*time.Time {
	times := []*time.Time{&i.CreatedAt, i.RegisteredAt, i.RemovalAskedAt, i.DeletedAt, i.Provider.CreateAttemptedAt}
	if i.Drain != nil {
		times = append(times, i.Drain.AckedAt)
	}
	return times
}
