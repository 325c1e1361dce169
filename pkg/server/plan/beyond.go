package plan

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Beyond is how many of a group's managed instances, by their records alone, may be there
// beyond its size because others are being replaced: as many as have another that is to go,
// and no more than its surge, and one that was asked to be replaced, let it have.
func Beyond(instances []fleet.Instance, g fleet.Group, s Settings, now time.Time) int {
	stay, stale, age := 0, 0, s.staleAge()
	for _, i := range instances {
		aged := age > 0 && !now.Before(i.ID.Time().Add(age))
		switch {
		case i.OnDemand || !i.Phase.Active():
		case aged || i.RemovalAskedAt != nil || i.Hashes.Outdated(g.Hashes):
			stale++
		default:
			stay++
		}
	}
	return min(stale, stay, g.MaxSurge.Of(g.Size)+1)
}
