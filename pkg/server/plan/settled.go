package plan

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// SettlesAt returns when an instance settles if it lives until then; zero if it has not
// registered. From then on its create counts as a success, and its end is not counted as a
// failure of its definition. The result depends on the record alone, so all leaders agree.
func SettlesAt(i *fleet.Instance, s Settings) time.Time {
	if i.RegisteredAt == nil {
		return time.Time{}
	}
	return i.RegisteredAt.Add(max(0, s.Settle))
}

// Settled reports whether an instance that was alive at the given time had settled by then.
func Settled(i *fleet.Instance, s Settings, at time.Time) bool { return reached(SettlesAt(i, s), at) }
