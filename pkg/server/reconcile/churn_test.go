package reconcile_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// TestLargeChurnLeavesNothing: when ten thousand instances of a thousand groups have come and
// gone, for every reason, the loop has no state of them left.
func TestLargeChurnLeavesNothing(t *testing.T) {
	large(t)
	const rounds, groups, size = 40, 25, 10
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.wanted.settings.DeletedRetention = time.Minute
		s.world.SetCapacity(map[string]int{"subnet-a": 1 << 20, "subnet-b": 1 << 20})
		s.define("tg-1")
		s.adjust = func(c *reconcile.Config) { c.LoadBalancers = s.loadBalancers }
		s.churnedBefore()
		s.lead()
		pass(time.Minute)
		for round := range rounds {
			s.churn(round, groups, size)
		}
		s.world.Mend()
		pass(3 * time.Hour) // tombstones go, sweeps pass, subnets are asked about
		if left := s.bucket.all(); len(left) > 0 || s.creates() < rounds*groups*size {
			t.Fatalf("%d records are left, %d machines were made", len(left), s.creates())
		}
		for what, n := range s.term.Entries() {
			if n > 0 {
				t.Errorf("%s: %d entries are left", what, n)
			}
		}
	})
}

// churnedBefore leaves pending records, whose create may have been called, to the next leader.
func (s *shard) churnedBefore() {
	key := fleet.GroupKey{Tenant: "default", Name: "before"}
	s.size(key, 20)
	s.lead()
	pass(50 * time.Millisecond)
	_ = s.stop()
	if len(s.records(key, fleet.Pending)) == 0 {
		s.t.Fatal("nothing is pending: this shows nothing")
	}
	s.wanted.edit(key, func(g *fleet.Group) { g.Removed, g.Size = true, 0 })
}

// churn adds groups, makes them fail in every way, and removes them.
func (s *shard) churn(round, groups, size int) {
	var keys []fleet.GroupKey
	for n := range groups {
		key := fleet.GroupKey{Tenant: "default", Name: fmt.Sprintf("g%d-%d", round, n)}
		s.wanted.edit(key, func(g *fleet.Group) {
			g.Size, g.DrainTimeout = size, 0
			if n%10 == 0 {
				g.LoadBalancers, g.DrainTimeout = []string{"www"}, time.Minute
			}
			if n%10 == 1 {
				g.Subnets = []string{"missing-" + key.Name}
				g.Subnets = append(g.Subnets, "subnet-a")
			}
		})
		keys = append(keys, key)
	}
	s.world.FailNext(fake.OpCreate, 3, fake.Fault{Err: fmt.Errorf("none left: %w", provider.ErrSubnetFull)})
	s.term.Enqueue(keys...)
	pass(10 * time.Minute)
	for n, key := range keys {
		ids := s.running(key)
		if len(ids) != size {
			s.t.Fatalf("%s: %d of %d run", key, len(ids), size)
		}
		switch n % 10 {
		case 2:
			s.world.Kill(ids[0])
		case 3:
			s.world.Vanish(ids[0])
		case 4:
			s.bucket.take(ids[0])
		}
	}
	pass(2 * quiet)
	s.refuseEdits(errors.New("the store is down"))
	for _, key := range keys {
		s.wanted.edit(key, func(g *fleet.Group) { g.Removed, g.Size = true, 0 })
	}
	s.term.Enqueue(keys...)
	pass(10 * time.Minute)
	s.refuseEdits(nil)
	pass(time.Minute)
}

func (s *shard) refuseEdits(err error) {
	s.wanted.mu.Lock()
	defer s.wanted.mu.Unlock()
	s.wanted.fail = err
}
