package plan

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// SettlesAt is when an instance is settled that lives until then: from there on its
// create counts as a success, and its end as its own. Zero: it has not registered.
// The record alone says it, so it holds for every leader.
func SettlesAt(i *fleet.Instance, s Settings) time.Time {
	if i.RegisteredAt == nil {
		return time.Time{}
	}
	return i.RegisteredAt.Add(max(0, s.Settle))
}

// Settled reports whether an instance that lives, or lived, at a moment was settled then.
func Settled(i *fleet.Instance, s Settings, at time.Time) bool { return reached(SettlesAt(i, s), at) }
