package reconcile_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/fair"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// TestTenantsTakeTurns: a tenant with many growing groups delays a tenant with a single group no
// longer than one with a single large group would.
func TestTenantsTakeTurns(t *testing.T) {
	for _, groups := range []int{1, 40} {
		t.Run(fmt.Sprint(groups), func(t *testing.T) {
			bubble(t, fake.Config{CreateLatency: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
				s.adjust = func(c *reconcile.Config) {
					c.CreateRate = fair.Rate{PerSecond: 2, Burst: 5, Concurrency: 16}
				}
				s.size(web, 3)
				s.lead()
				pass(time.Minute)
				s.expectRunning(web, 3)
				for n := range groups {
					s.size(fleet.GroupKey{Tenant: "blue", Name: fmt.Sprintf("g%d", n)}, 200/groups)
				}
				pass(10 * time.Second)
				asked := time.Now()
				s.size(web, 6)
				pass(3 * time.Minute)
				s.expectRunning(web, 6)
				last := time.Duration(0)
				for _, c := range s.world.Calls(fake.OpCreate) {
					if spec, ok := s.world.Spec(c.Ref.ID); ok && spec.Tags[provider.TagGroup] == web.Name && c.Start.After(asked) {
						last = max(last, c.Start.Sub(asked))
					}
				}
				if want := 4 * time.Second; last == 0 || last > want { // every second create, at two a second
					t.Errorf("the last of three creates began after %v, want at most %v", last, want)
				}
			})
		})
	}
}

// TestLossesOfATenantTakeTurnsToo: immediate replacements come before all other creates of their
// tenant, but not before another tenant's, so a tenant can't delay others by ending its machines.
func TestLossesOfATenantTakeTurnsToo(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(100 * time.Millisecond)}, func(t *testing.T, s *shard) {
		blue := fleet.GroupKey{Tenant: "blue", Name: "lossy"}
		s.size(web, 1)
		s.size(blue, 100)
		s.lead()
		pass(10 * time.Minute) // all have settled
		s.expectRunning(web, 1)
		s.reconfigure(func(t *reconcile.Tuning) {
			t.CreateRate = fair.Rate{PerSecond: 0.5, Burst: 1, Concurrency: 16}
		}, nil)
		pass(time.Minute)
		for _, id := range s.expectRunning(blue, 100)[:10] {
			s.world.Kill(id)
		}
		asked := time.Now()
		s.size(web, 3)
		pass(2 * time.Minute)
		s.expectRunning(web, 3)
		s.expectRunning(blue, 100)
		last := time.Duration(0)
		for _, c := range s.world.Calls(fake.OpCreate) {
			if spec, ok := s.world.Spec(c.Ref.ID); ok && spec.Tags[provider.TagGroup] == web.Name && c.Start.After(asked) {
				last = max(last, c.Start.Sub(asked))
			}
		}
		if want := 10 * time.Second; last == 0 || last > want { // the fourth create, one every two seconds
			t.Errorf("the second of two creates began after %v, want at most %v", last, want)
		}
	})
}
