package reconcile_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// TestSweepSettlesDeletions: a deleting VM that a list no longer shows is polled, and its record
// becomes a tombstone when it is gone; VMs that are still listed are left to the poller.
func TestSweepSettlesDeletions(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		var listed atomic.Bool
		s.adjust = func(c *reconcile.Config) { c.Provider = unwatched{unasked{s.world.Open(scope, "a"), &listed}} }
		listed.Store(true)
		s.size(web, 20)
		s.lead()
		pass(2*time.Minute + 20*time.Second) // some way into the time until the next sweep
		s.expectRunning(web, 20)
		listed.Store(false)
		s.size(web, 0)
		pass(time.Second)
		lists := len(s.world.Calls(fake.OpList))
		for len(s.world.Calls(fake.OpList)) == lists {
			if n := len(s.records(web, fleet.Deleting)); n != 20 {
				t.Fatalf("%d are being deleted, want 20", n)
			}
			pass(10 * time.Millisecond)
		}
		if n := len(s.records(web, fleet.Deleted)); n != 20 {
			t.Errorf("%d tombstones right after a sweep, want 20", n)
		}
	})
}

// TestSweepLeavesDeletionsUnderWayAlone: the list shows the deleting VMs.
func TestSweepLeavesDeletionsUnderWayAlone(t *testing.T) {
	bubble(t, fake.Config{Shutdown: fake.Fixed(time.Hour)}, func(t *testing.T, s *shard) {
		s.adjust = withoutWatch
		s.size(web, 5)
		s.lead()
		pass(2*time.Minute + 20*time.Second)
		s.size(web, 0)
		pass(time.Second)
		s.world.ForgetCalls()
		for len(s.world.Calls(fake.OpList)) == 0 {
			s.world.ForgetCalls()
			pass(10 * time.Millisecond)
		}
		if n := len(s.world.Calls(fake.OpGet)); n != 0 {
			t.Errorf("a sweep asked about VMs that it saw on their way out: %d status calls", n)
		}
	})
}
