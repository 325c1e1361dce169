package reconcile_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

func TestGroupReachesItsSize(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.world = fake.New(fake.Config{CreateLatency: fake.Fixed(50 * time.Millisecond), OnCall: func(c fake.Call) {
			if c.Op != fake.OpCreate {
				return
			}
			r, ok := s.bucket.get(c.Ref.ID)
			if !ok || r.Phase != fleet.Pending || r.Provider.CreateAttemptedAt == nil {
				t.Errorf("create of %s called before its record was there", c.Ref.ID)
			}
		}})
		s.size(web, 3)
		s.size(db, 1)
		s.lead()
		pass(10 * time.Second)
		s.expectRunning(web, 3)
		s.expectRunning(db, 1)
		for _, r := range s.bucket.all() {
			if r.Provider.ID == "" || r.Provider.Subnet != "subnet-a" || r.Hashes.Infra != "i1" {
				t.Errorf("record is incomplete: %+v", r)
			}
		}
		if n := len(s.world.Calls(fake.OpCreate)); n != 4 {
			t.Errorf("%d creates for 4 instances", n)
		}
	})
}

func TestNothingIsDecidedBeforeTheFirstList(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.world.FailNext(fake.OpList, 3, fake.Fault{Err: errors.New("cloud is away")})
		s.size(web, 2)
		s.lead()
		pass(time.Second)
		if n := len(s.world.Calls(fake.OpCreate)) + s.bucket.written(); n != 0 {
			t.Errorf("%d acts before the provider's first list", n)
		}
		pass(10 * time.Second)
		s.expectRunning(web, 2)
		if len(s.reported(problems.ReasonProvider)) != 3 {
			t.Errorf("want the three failures reported: %v", s.problems)
		}
	})
}

func TestScaleDownTakesTheOldestAndPrunes(t *testing.T) {
	bubble(t, fake.Config{Shutdown: fake.Fixed(3 * time.Second)}, func(t *testing.T, s *shard) {
		s.size(web, 2)
		s.lead()
		pass(10 * time.Second)
		old := s.expectRunning(web, 2)
		s.size(web, 5)
		pass(10 * time.Second)
		s.expectRunning(web, 5)
		s.size(web, 3)
		pass(20 * time.Second)
		for _, id := range s.expectRunning(web, 3) {
			if id == old[0] || id == old[1] {
				t.Errorf("%s is one of the oldest and stayed", id)
			}
		}
		if got := s.records(web, fleet.Deleted); len(got) != 2 {
			t.Errorf("want two tombstones: %s", s.dump())
		}
		if n := len(s.world.VMs()); n != 3 {
			t.Errorf("%d VMs, want 3", n)
		}
		pass(31 * time.Minute)
		if got := s.records(web, fleet.Deleted); len(got) != 0 {
			t.Errorf("tombstones outlive their retention: %s", s.dump())
		}
		pass(2 * time.Minute)
		if h := s.term.Health(old[0]); h != (observe.Health{}) {
			t.Errorf("something is still known of an instance that is no more: %+v", h)
		}
	})
}

func TestRemovedGroupIsEmptiedAndForgotten(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 2)
		s.lead()
		pass(10 * time.Second)
		s.wanted.mu.Lock()
		s.wanted.fail = errStoreDown
		s.wanted.mu.Unlock()
		s.wanted.edit(web, func(g *fleet.Group) { g.Removed = true })
		s.term.Enqueue(web)
		pass(10 * time.Second)
		if len(s.world.VMs()) != 0 {
			t.Fatalf("VMs are left: %s", s.dump())
		}
		if len(s.reported(problems.ReasonStorage)) == 0 {
			t.Errorf("the failed edit was not reported")
		}
		s.wanted.mu.Lock()
		s.wanted.fail = nil
		s.wanted.mu.Unlock()
		pass(2 * time.Minute)
		if len(s.wanted.forgot) != 1 {
			t.Errorf("forgotten %d times, want once", len(s.wanted.forgot))
		}
	})
}

func TestLeavingInstanceIsSettled(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 3)
		s.lead()
		pass(10 * time.Second)
		leaver := s.expectRunning(web, 3)[2]
		s.wanted.edit(web, func(g *fleet.Group) { g.Size, g.Leaving = 2, []fleet.InstanceID{leaver} })
		s.term.Enqueue(web)
		pass(2 * time.Minute)
		for _, id := range s.expectRunning(web, 2) {
			if id == leaver {
				t.Errorf("%s was asked to leave and stayed", leaver)
			}
		}
		if g, _ := s.wanted.Group(web); len(g.Leaving) != 0 {
			t.Errorf("leaving list is not settled: %v", g.Leaving)
		}
	})
}

func TestLostLeadershipEndsTheLoopWithoutAnAct(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 2)
		s.lead()
		pass(10 * time.Second)
		s.expectRunning(web, 2)
		creates, deletes := len(s.world.Calls(fake.OpCreate)), len(s.world.Calls(fake.OpDelete))
		old := s.term
		s.bucket.lead() // another server leads from here on
		s.size(web, 4)
		if err := soon(t, old.done, "the end of the old loop"); !errors.Is(err, errNotLeader) {
			t.Errorf("run returned %v, want that it is not the leader", err)
		}
		old.end()
		s.term = nil
		s.agents.wait()
		if len(s.world.Calls(fake.OpCreate)) != creates || len(s.world.Calls(fake.OpDelete)) != deletes {
			t.Errorf("the old leader acted")
		}
	})
}

func TestFenceStopsTheProviderCallItself(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.bucket.onWrite = func(op string, _ fleet.Instance) {
			if op == "create" { // the term ends between the record and the create
				s.bucket.epoch++
			}
		}
		s.size(web, 1)
		s.lead()
		if err := soon(t, s.term.done, "the end of the loop"); !errors.Is(err, errNotLeader) {
			t.Errorf("run returned %v", err)
		}
		if n := len(s.world.Calls(fake.OpCreate)); n != 0 {
			t.Errorf("%d creates after the term", n)
		}
		s.term.end()
		s.term = nil
		s.agents.wait()
	})
}

func TestConfigNamesWhatIsMissing(t *testing.T) {
	_, err := reconcile.New(reconcile.Config{})
	if err == nil {
		t.Fatal("an empty config was accepted")
	}
	for _, field := range []string{
		"Ledger", "Fence", "Groups", "Builder", "Provider", "NewID", "Problems", "Logger", "Uniform",
		"CreateRate.Concurrency", "CreateBackoff", "RequestTimeout", "SweepInterval", "FirstSweep",
	} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("error does not name %s: %v", field, err)
		}
	}
}

func TestLoopRemembersBeforeRunAndIsHarmlessAfter(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 1)
		s.lead()
		pass(10 * time.Second)
		id := s.expectRunning(web, 1)[0]
		loop := s.term.Loop
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		loop.AgentDisconnected(id, time.Now())
		loop.Enqueue()
		loop.AgentReport(id, fleet.Report{At: time.Now()})
		calls := len(s.world.Calls())
		pass(10 * time.Minute)
		if len(s.world.Calls()) != calls {
			t.Errorf("a loop that ended called the provider")
		}
		if h := loop.Health(id); h.Connected {
			t.Errorf("health is %+v", h)
		}
	})
}
