package reconcile_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
)

// TestGroupThatIsCompleteHasNoCreatesThatFail: a group whose size was reduced to what the
// provider accepts has converged.
func TestGroupThatIsCompleteHasNoCreatesThatFail(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
		s.wanted.settings.Settle = settle
		s.size(web, 5)
		s.lead()
		pass(10 * time.Minute)
		s.world.FailNext(fake.OpCreate, 10_000, fake.Fault{Err: provider.ErrQuota})
		s.size(web, 10)
		pass(10 * time.Minute)
		if _, ok := s.term.CreatesFailing(web); !ok {
			t.Fatalf("not said to fail: %s", s.dump())
		}
		s.size(web, 5)
		pass(10 * time.Minute)
		s.expectRunning(web, 5)
		if c, ok := s.term.CreatesFailing(web); ok || !slices.Contains(s.solvedOf(), web) {
			t.Errorf("still said to fail: %+v", c)
		}
	})
}

// TestMachinesThatAreThereAfterAll: their creates succeeded without an answer.
func TestMachinesThatAreThereAfterAll(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
		s.wanted.settings.Settle = settle
		s.world.FailNext(fake.OpCreate, 10_000, fake.Fault{Applied: true, Err: errors.New("connection reset")})
		s.size(web, 5)
		s.lead()
		pass(2 * time.Second)
		if _, ok := s.term.CreatesFailing(web); !ok {
			t.Fatalf("not said to fail: %s", s.dump())
		}
		pass(10 * time.Minute)
		s.expectRunning(web, 5)
		if c, ok := s.term.CreatesFailing(web); ok || !slices.Contains(s.solvedOf(), web) {
			t.Errorf("still said to fail: %+v", c)
		}
	})
}
