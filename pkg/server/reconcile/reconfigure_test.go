package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/fair"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

func tuning(change func(*reconcile.Tuning)) reconcile.Tuning {
	t := reconcile.Tuning{
		CreateBackoff: 5 * time.Minute,
		CreateRate:    fair.Rate{Concurrency: 16}, RequestTimeout: 30 * time.Second, SweepInterval: 2 * time.Minute, Quiet: quiet,
	}
	if change != nil {
		change(&t)
	}
	return t
}

func (s *shard) reconfigure(change func(*reconcile.Tuning), swap func()) {
	s.t.Helper()
	if swap == nil {
		swap = func() {}
	}
	if err := s.term.Reconfigure(tuning(change), swap); err != nil {
		s.t.Fatal(err)
	}
}

func TestReconfigureSweepInterval(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.adjust = func(c *reconcile.Config) { c.SweepInterval, c.FirstSweep = 24*time.Hour, 30*time.Second }
		s.lead()
		pass(time.Hour)
		lists := func() int { return len(s.world.Calls(fake.OpList)) }
		if n := lists(); n != 2 { // of the takeover, and the first sweep
			t.Fatalf("%d lists in the first hour", n)
		}
		s.reconfigure(nil, nil)
		pass(time.Second)
		if n := lists(); n != 3 {
			t.Errorf("%d lists: a sweep that is overdue by the new interval waits", n)
		}
		pass(10 * time.Minute)
		if n := lists(); n != 8 {
			t.Errorf("%d lists, want 5 more in 10 minutes", n)
		}
		s.reconfigure(func(t *reconcile.Tuning) { t.SweepInterval = time.Hour }, nil)
		pass(30 * time.Minute)
		if n := lists(); n != 8 {
			t.Errorf("%d lists, want no more within the longer interval", n)
		}
	})
}

func TestReconfigureConcurrency(t *testing.T) {
	slow := fake.Fixed(20 * time.Second)
	bubble(t, fake.Config{CreateLatency: slow, DeleteLatency: slow}, func(t *testing.T, s *shard) {
		s.adjust = func(c *reconcile.Config) { c.CreateRate.Concurrency = 2 }
		s.size(web, 20)
		s.lead()
		pass(time.Second)
		expect := func(op fake.Op, want int) {
			t.Helper()
			if n := len(s.world.Calls(op)); n != want {
				t.Errorf("%d times %v, want %d", n, op, want)
			}
		}
		expect(fake.OpCreate, 2)
		s.reconfigure(func(t *reconcile.Tuning) { t.CreateRate.Concurrency = 10 }, nil)
		pass(time.Second)
		expect(fake.OpCreate, 10)
		s.reconfigure(func(t *reconcile.Tuning) { t.CreateRate.Concurrency = 1 }, nil)
		pass(25 * time.Second) // all ten have ended
		expect(fake.OpCreate, 11)
		s.reconfigure(nil, nil)
		pass(2 * time.Minute)
		s.expectRunning(web, 20)

		s.reconfigure(func(t *reconcile.Tuning) { t.CreateRate.Concurrency = 3 }, nil)
		s.size(web, 0)
		pass(time.Second)
		expect(fake.OpDelete, 3)
		s.reconfigure(func(t *reconcile.Tuning) { t.CreateRate.Concurrency = 5 }, nil)
		pass(time.Second)
		expect(fake.OpDelete, 4) // the last one is a batch of all that waited
		pass(3 * time.Minute)
		if n := len(s.alive()); n != 0 {
			t.Errorf("%d live: %s", n, s.dump())
		}
	})
}

func TestReconfigureRate(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.adjust = func(c *reconcile.Config) {
			c.CreateRate = fair.Rate{PerSecond: 0.1, Burst: 1, Concurrency: 16}
		}
		s.size(web, 30)
		s.lead()
		pass(25 * time.Second)
		if n := len(s.world.VMs()); n != 3 {
			t.Fatalf("%d VMs after 25 s, want one each 10 s", n)
		}
		s.reconfigure(func(t *reconcile.Tuning) {
			t.CreateRate = fair.Rate{PerSecond: 5, Burst: 1, Concurrency: 16}
		}, nil)
		pass(2 * time.Second)
		if n := len(s.world.VMs()); n < 11 || n > 15 {
			t.Errorf("%d VMs after 2 s at 5 a second", n)
		}
		s.reconfigure(nil, nil)
		pass(time.Second)
		if n := len(s.world.VMs()); n != 30 {
			t.Errorf("%d VMs without a limit", n)
		}
	})
}

// TestReconfigureSwap: creates that were decided by the old definitions and have not begun are
// dropped.
func TestReconfigureSwap(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.adjust = func(c *reconcile.Config) {
			c.CreateRate = fair.Rate{PerSecond: 0.1, Burst: 1, Concurrency: 16}
		}
		s.size(web, 5)
		s.size(db, 5)
		s.lead()
		pass(15 * time.Second)
		before := len(s.world.VMs())
		s.reconfigure(nil, func() {
			for _, key := range []fleet.GroupKey{web, db} {
				s.wanted.edit(key, func(g *fleet.Group) { g.InstanceType, g.Hashes.Infra = "large", "i2" })
			}
		})
		pass(10 * time.Second)
		after := s.world.Calls(fake.OpCreate)[before:]
		if len(after) == 0 {
			t.Error("nothing was created after the swap")
		}
		for _, c := range after {
			if spec, ok := s.world.Spec(c.Ref.ID); !ok || spec.InstanceType != "large" {
				t.Errorf("%s was created as %q after the swap", c.Ref.ID, spec.InstanceType)
			}
		}
	})
}

// TestReconfigureRequestTimeout: the new timeout applies to the next call.
func TestReconfigureRequestTimeout(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(10 * time.Second)}, func(t *testing.T, s *shard) {
		s.adjust = func(c *reconcile.Config) { c.RequestTimeout = time.Second }
		s.size(web, 1)
		s.lead()
		pass(time.Minute)
		if len(s.reported(problems.ReasonProvider)) == 0 {
			t.Fatal("creates that take longer than the timeout succeed")
		}
		s.reconfigure(nil, nil)
		pass(10 * time.Minute)
		s.expectRunning(web, 1)
	})
}

func TestReconfigureRefusesWhatIsNotValid(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.lead()
		swapped := false
		err := s.term.Reconfigure(reconcile.Tuning{CreateRate: fair.Rate{PerSecond: -1}}, func() { swapped = true })
		for _, field := range []string{"CreateRate.PerSecond", "CreateRate.Concurrency", "RequestTimeout", "SweepInterval"} {
			if err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("%v does not name %s", err, field)
			}
		}
		if swapped {
			t.Error("it swapped all the same")
		}
	})
}
