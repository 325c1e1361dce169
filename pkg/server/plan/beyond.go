package plan

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Beyond returns, from the records alone, how many managed instances a group may have beyond
// its size because others are being replaced: the number of stale instances, at most the
// group's surge plus one for a requested replacement. Their replacements may be outdated too. Nothing is replaced in
// a group of size 0.
func Beyond(instances []fleet.Instance, g fleet.Group, s Settings, now time.Time) int {
	if g.Size == 0 {
		return 0
	}
	stale, age := 0, s.staleAge()
	for _, i := range instances {
		aged := age > 0 && !now.Before(born(&i).Add(age))
		switch {
		case i.OnDemand || !i.Phase.Active():
		case aged || i.RemovalAskedAt != nil || i.Hashes.Outdated(g.Hashes):
			stale++
		}
	}
	return min(stale, g.MaxSurge.Of(g.Size)+1)
}
