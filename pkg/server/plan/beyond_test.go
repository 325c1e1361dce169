package plan_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// TestBeyond: only a rotation in progress allows a group more instances than its size, at most its
// surge.
func TestBeyond(t *testing.T) {
	const infra, earlier = "now", "earlier"
	many := func(n int, change func(*fleet.Instance)) (all []fleet.Instance) {
		for range n {
			i := fleet.Instance{ID: newID(now.Add(-time.Hour), 1), Phase: fleet.Running, Hashes: fleet.Hashes{Infra: infra}}
			change(&i)
			all = append(all, i)
		}
		return all
	}
	fresh := func(*fleet.Instance) {}
	outdated := func(i *fleet.Instance) { i.Hashes.Infra = earlier }
	aged := func(i *fleet.Instance) { i.ID = newID(now.Add(-25*time.Hour), 1) }
	asked := func(i *fleet.Instance) { i.RemovalAskedAt = new(now) }
	ending := func(i *fleet.Instance) { i.Phase = fleet.Deleting; outdated(i) }
	onDemand := func(i *fleet.Instance) { i.OnDemand = true; outdated(i) }
	for name, c := range map[string]struct {
		fresh, others int
		which         func(*fleet.Instance)
		want          int
	}{
		"nothing is replaced":             {12, 0, outdated, 0},
		"all are outdated, and some came": {0, 12, outdated, 3},
		"the first has its replacement":   {1, 10, outdated, 3},
		"as many as come at a time":       {6, 6, outdated, 3},
		"the last of them":                {10, 1, outdated, 1},
		"one is too old":                  {10, 1, aged, 1},
		"one was asked to be replaced":    {10, 1, asked, 1},
		"one is on its way out":           {10, 1, ending, 0},
		"an on-demand one is beside them": {10, 1, onDemand, 0},
	} {
		group := fleet.Group{Size: 10, Hashes: fleet.Hashes{Infra: infra}, MaxSurge: fleet.Surge{Count: 2}}
		instances := append(many(c.fresh, fresh), many(c.others, c.which)...)
		if got := plan.Beyond(instances, group, plan.Settings{EligibleAge: 24 * time.Hour}, now); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
