package reconcile_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
)

// TestMachineThatIsLongGoneIsGivenUp: calls to a load balancer that refuses permanently are not
// retried for ever for machines without a record.
func TestMachineThatIsLongGoneIsGivenUp(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.balanced(www)
		s.wanted.edit(web, func(g *fleet.Group) { g.DrainTimeout = 0 })
		s.size(web, 3)
		s.lead()
		pass(time.Minute)
		s.expectRegistered(www, s.machines(web, fleet.Running))
		denied := fake.Fault{Err: errors.New("not allowed")}
		s.world.FailNext(fake.OpDeregister, 1<<20, denied)
		s.world.FailNext(fake.OpTargets, 1<<20, denied)
		s.size(web, 1)
		pass(45 * time.Minute)
		tried := len(s.world.Calls(fake.OpDeregister))
		pass(5 * time.Minute)
		if n := len(s.world.Calls(fake.OpDeregister)); n == tried {
			t.Error("given up too soon")
		}
		pass(time.Hour)
		tried = len(s.world.Calls(fake.OpDeregister))
		pass(time.Hour)
		if n := len(s.world.Calls(fake.OpDeregister)) - tried; n != 0 || len(s.bucket.all()) != 1 {
			t.Errorf("%d calls in an hour for machines that are long gone, %s", n, s.dump())
		}
	})
}

// TestManyRegistrationsAreBounded: a large group does not open a call for each.
func TestManyRegistrationsAreBounded(t *testing.T) {
	bubble(t, fake.Config{AsideLatency: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
		s.balanced(www, extra)
		s.size(web, 50)
		s.lead()
		pass(time.Minute)
		s.expectRegistered(www, s.machines(web, fleet.Running))
		calls := s.world.Calls(fake.OpRegister)
		for n, c := range calls {
			under := 0
			for m, o := range calls {
				if !o.Start.After(c.Start) && o.End.After(c.Start) {
					under++
				}
				if n != m && o.Ref == c.Ref && o.Target == c.Target && o.Start.Before(c.End) && c.Start.Before(o.End) {
					t.Fatalf("two calls for %s and %s at one time", c.Ref.ID, c.Target)
				}
			}
			if under > 8 {
				t.Fatalf("%d calls under way at one time", under)
			}
		}
		if len(calls) != 100 {
			t.Errorf("%d registrations", len(calls))
		}
	})
}
