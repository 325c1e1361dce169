package reconcile_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

func TestDeadInstanceIsReplacedAtOnce(t *testing.T) {
	world := fake.Config{GetLatency: fake.Fixed(20 * time.Millisecond), CreateLatency: fake.Fixed(50 * time.Millisecond)}
	bubble(t, world, func(t *testing.T, s *shard) {
		s.bucket.latency = 30 * time.Millisecond
		s.adjust = withoutWatch
		s.size(web, 3)
		s.lead()
		pass(time.Minute)
		victim := s.expectRunning(web, 3)[1]
		killed := time.Now()
		s.world.Kill(victim)
		pass(time.Second)

		lines := s.logged("replacement started")
		if len(lines) != 1 || lines[0]["replaces"] != string(victim) {
			t.Fatalf("replacement log: %v", lines)
		}
		at := func(name string) time.Duration {
			when, err := time.Parse(time.RFC3339Nano, fmt.Sprint(lines[0][name]))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return when.Sub(killed)
		}
		for name, want := range map[string]time.Duration{
			"disconnected_at": 0, "status_at": 20 * time.Millisecond, "decided_at": 20 * time.Millisecond,
			"recorded_at": 50 * time.Millisecond, "create_called_at": 50 * time.Millisecond,
		} {
			if got := at(name); got != want {
				t.Errorf("%s is %v after the kill, want %v", name, got, want)
			}
		}
		creates := s.world.CreateCalls(fleet.InstanceID(fmt.Sprint(lines[0]["instance"])))
		if len(creates) != 1 || creates[0].Start.Sub(killed) != 50*time.Millisecond {
			t.Errorf("the create came late: %v", creates)
		}
		pass(5 * time.Second)
		s.expectRunning(web, 3)
		if r, _ := s.bucket.get(victim); r.Phase != fleet.Deleted || r.Reason != plan.ReasonVMDown || r.DeletedAt == nil {
			t.Errorf("the dead one's record: %+v", r)
		}
	})
}

// unwatched hides that a provider can be watched.
type unwatched struct{ provider.Provider }

func (u unwatched) ConsistentReads() bool { return provider.Consistent(u.Provider) }

func withoutWatch(c *reconcile.Config) { c.Provider = unwatched{c.Provider} }

func TestAllAgentsKilledAtOnce(t *testing.T) {
	slow := fake.Config{
		Boot: fake.Fixed(time.Second), Shutdown: fake.Fixed(time.Second),
		GetLatency: fake.Fixed(5 * time.Millisecond), ListLatency: fake.Fixed(5 * time.Millisecond),
	}
	bubble(t, slow, func(t *testing.T, s *shard) {
		const size = 40
		s.bucket.latency = 5 * time.Millisecond
		s.adjust = withoutWatch
		s.size(web, size)
		s.lead()
		pass(time.Minute)
		for _, id := range s.expectRunning(web, size) {
			s.world.Kill(id)
		}
		gets, lists := len(s.world.Calls(fake.OpGet)), len(s.world.Calls(fake.OpList))
		killed := time.Now()
		for time.Since(killed) < 10*time.Second {
			time.Sleep(time.Millisecond)
			if n := len(s.alive()); n > size+1 {
				t.Fatalf("%d live VMs %v after the kill, more than %d", n, time.Since(killed), size+1)
			}
			if time.Since(killed) == 9*time.Millisecond { // before the first deletion is polled
				// Ten calls at a time, of 5 ms each, and no list.
				if g, l := len(s.world.Calls(fake.OpGet))-gets, len(s.world.Calls(fake.OpList))-lists; g > 20 || l > 0 {
					t.Errorf("%d gets and %d lists for %d broken streams", g, l, size)
				}
			}
			if time.Since(killed) == 32*time.Millisecond { // and one write each, 16 at a time

				if n := len(s.world.Calls(fake.OpCreate)); n != 2*size {
					t.Errorf("%d of %d replacements asked for", n-size, size)
				}
			}
		}
		synctest.Wait()
		s.expectRunning(web, size)
		replaced := map[any]bool{}
		for _, line := range s.logged("replacement started") {
			replaced[line["replaces"]] = true
		}
		if len(replaced) != size || len(s.logged("replacement started")) != size {
			t.Errorf("%d replacements of %d instances logged, want %d", len(s.logged("replacement started")), len(replaced), size)
		}
	})
}

func TestProviderThatIsLateToNoticeADeathIsAskedAgain(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.adjust = withoutWatch
		s.size(web, 2)
		s.lead()
		pass(time.Minute)
		victim := s.expectRunning(web, 2)[0]
		s.agents.drop(s.term, victim)
		time.Sleep(200 * time.Millisecond)
		s.world.Kill(victim)
		creates := len(s.world.Calls(fake.OpCreate))
		pass(500 * time.Millisecond)
		if n := len(s.world.Calls(fake.OpCreate)) - creates; n != 1 {
			t.Errorf("%d replacements, want 1", n)
		}
	})
}

func TestSilentAgentOnARunningVM(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 2)
		s.lead()
		pass(time.Minute)
		ids := s.expectRunning(web, 2)
		creates, gets := len(s.world.Calls(fake.OpCreate)), len(s.world.Calls(fake.OpGet))

		s.agents.drop(s.term, ids[0])
		pass(20 * time.Second)
		if n := len(s.world.Calls(fake.OpGet)) - gets; n < 2 || n > 9 {
			t.Errorf("the provider was asked %d times, want it bounded", n)
		}
		if h := s.term.Health(ids[0]); h.Connected || h.VM != provider.StateRunning || h.Unhealthy != "" {
			t.Errorf("health is %+v", h)
		}
		s.agents.connect(s.term, ids[0]) // back in time
		pass(time.Minute)
		if n := len(s.world.Calls(fake.OpCreate)) - creates; n != 0 {
			t.Fatalf("an agent that came back was replaced")
		}

		s.agents.drop(s.term, ids[1])
		pass(30 * time.Second)
		if h := s.term.Health(ids[1]); h.Unhealthy != plan.ReasonUnhealthy {
			t.Errorf("health is %+v", h)
		}
		pass(30 * time.Second)
		s.expectRunning(web, 2)
		if slices.Contains(s.running(web), ids[1]) {
			t.Errorf("a silent instance was not replaced: %s", s.dump())
		}
		if len(s.logged("replacement started")) != 0 {
			t.Errorf("a silent instance counted as lost")
		}
	})
}

func TestShutdownReport(t *testing.T) {
	bubble(t, fake.Config{Shutdown: fake.Fixed(time.Minute)}, func(t *testing.T, s *shard) {
		s.adjust = withoutWatch
		s.size(web, 2)
		s.lead()
		pass(time.Minute)
		ids := s.expectRunning(web, 2)

		// A restart of the agent costs nothing.
		s.term.AgentReport(ids[0], fleet.Report{At: time.Now(), ShuttingDown: true})
		s.agents.drop(s.term, ids[0])
		pass(5 * time.Second)
		if h := s.term.Health(ids[0]); h.Unhealthy != "" { // as the decision sees it
			t.Errorf("within its grace, health is %+v", h)
		}
		s.term.AgentConnected(ids[0])
		if h := s.term.Health(ids[0]); h.Unhealthy != "" {
			t.Errorf("health is %+v", h)
		}
		s.agents.connect(s.term, ids[0])
		pass(time.Minute)
		if n := len(s.world.Calls(fake.OpCreate)); n != 2 {
			t.Fatalf("%d creates, want none for a restarted agent", n-2)
		}

		// A machine that goes down is replaced when the provider says so.
		s.agents.mu.Lock()
		delete(s.agents.open, ids[1]) // its stream stays open
		s.agents.mu.Unlock()
		s.world.Stop(ids[1])
		s.term.AgentReport(ids[1], fleet.Report{At: time.Now(), ShuttingDown: true})
		pass(time.Millisecond)
		if n := len(s.world.Calls(fake.OpCreate)); n != 3 {
			t.Errorf("%d creates, want one for the machine that stops", n-2)
		}

		// So is an instance whose agent stopped for good.
		s.term.AgentReport(ids[0], fleet.Report{At: time.Now(), ShuttingDown: true})
		s.agents.drop(s.term, ids[0])
		pass(29 * time.Second)
		if n := len(s.world.Calls(fake.OpCreate)); n != 3 {
			t.Errorf("replaced before the grace was over")
		}
		pass(5 * time.Second)
		if n := len(s.world.Calls(fake.OpCreate)); n != 4 {
			t.Errorf("not replaced after the grace")
		}
	})
}

func TestNoticeReplacesAtOnceAndDrains(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 1)
		s.wanted.edit(web, func(g *fleet.Group) { g.DrainTimeout = 10 * time.Minute })
		s.lead()
		pass(time.Minute)
		id := s.expectRunning(web, 1)[0]
		taken := time.Now().Add(2 * time.Minute)
		s.term.AgentReport(id, fleet.Report{At: time.Now(), Notice: &fleet.Notice{At: taken}})
		pass(5 * time.Second)
		r, _ := s.bucket.get(id)
		if r.Phase != fleet.Draining || r.Drain == nil || !r.Drain.DeleteAt.Equal(taken) {
			t.Errorf("want it to drain until it is taken: %+v", r)
		}
		s.expectRunning(web, 1)
		if lines := s.logged("replacement started"); len(lines) != 1 || lines[0]["sign"] != "notice" {
			t.Errorf("replacement log: %v", lines)
		}
		pass(2 * time.Minute)
		if r, _ := s.bucket.get(id); r.Phase != fleet.Deleted {
			t.Errorf("want it gone after the notice: %+v", r)
		}
	})
}

func TestProviderEventReplacesWithoutABrokenStream(t *testing.T) {
	bubble(t, fake.Config{GetLatency: fake.Fixed(time.Hour)}, func(t *testing.T, s *shard) {
		s.size(web, 2)
		s.agents.muteAll = true // no agent connects: only provider events remain
		s.lead()
		pass(time.Minute)
		ids := s.records(web, fleet.Pending)
		s.world.Vanish(ids[0])
		pass(time.Millisecond)
		if n := len(s.world.Calls(fake.OpCreate)); n != 3 {
			t.Errorf("%d creates, want one for the VM that vanished", n-2)
		}
	})
}

func TestBrokenWatchIsRenewedAndCatchesUp(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 1)
		s.size(db, 1)
		s.agents.muteAll = true
		s.lead()
		pass(time.Minute)
		ids := append(s.records(web, fleet.Pending), s.records(db, fleet.Pending)...)
		s.world.BreakWatches(errors.New("stream reset"))
		synctest.Wait()
		s.world.Kill(ids[0]) // while it is not watched
		pass(5 * time.Second)
		if n := len(s.world.Calls(fake.OpCreate)); n != 3 {
			t.Errorf("%d creates, want one for the death that no event told of", n-2)
		}
		s.world.Kill(ids[1])
		pass(time.Millisecond)
		if n := len(s.world.Calls(fake.OpCreate)); n != 4 {
			t.Errorf("the new watch does not work")
		}
	})
}

func TestNothingIsAskedWhenTheServerGoesDown(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 5)
		s.lead()
		pass(time.Minute)
		ids := s.expectRunning(web, 5)
		calls := len(s.world.Calls())
		m := s.term
		m.end()
		for _, id := range ids {
			m.AgentDisconnected(id, time.Now())
		}
		pass(time.Minute)
		if n := len(s.world.Calls()) - calls; n != 0 {
			t.Errorf("%d provider calls during the shutdown", n)
		}
	})
}

func TestStatusCallsThatFailAreRepeatedAndReportedOnce(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.adjust = withoutWatch
		s.size(web, 2)
		s.lead()
		pass(time.Minute)
		victim := s.expectRunning(web, 2)[0]
		s.world.Outage(errors.New("cloud is away"))
		s.world.Kill(victim)
		pass(20 * time.Second)
		if n := len(s.reported(problems.ReasonProvider)); n != 1 {
			t.Errorf("%d problems, want 1: %s", n, s.dump())
		}
		s.world.Outage(nil)
		pass(10 * time.Second)
		s.expectRunning(web, 2)
		if slices.Contains(s.running(web), victim) {
			t.Errorf("the dead one was not replaced")
		}
	})
}

func TestVMThatIsSlowToAppearIsNotTakenForGone(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		blind := &blindProvider{Provider: s.world.Open(scope, "server-1"), blind: true}
		s.adjust = func(c *reconcile.Config) { c.Provider = blind }
		s.agents.muteAll = true // none registers
		s.size(web, 1)
		s.lead()
		pass(5 * time.Second)
		id := s.records(web, fleet.Pending)[0]
		s.term.AgentDisconnected(id, time.Now()) // polls, and does not find the VM
		pass(54 * time.Second)
		if n := len(s.world.Calls(fake.OpCreate)); n != 1 {
			t.Errorf("a VM that was slow to appear was replaced")
		}
		pass(4 * time.Second) // a minute after the create, not-found counts
		if n := len(s.world.Calls(fake.OpCreate)); n != 2 {
			t.Errorf("%d creates, want a replacement", n)
		}
	})
}

func TestLossIsReplacedOnce(t *testing.T) {
	bubble(t, fake.Config{Shutdown: fake.Fixed(20 * time.Second)}, func(t *testing.T, s *shard) {
		s.size(web, 2)
		s.lead()
		pass(time.Minute)
		s.world.Kill(s.expectRunning(web, 2)[0])
		pass(time.Second) // the dead one is still being deleted
		s.size(web, 3)
		pass(time.Second)
		if n := len(s.logged("replacement started")); n != 1 {
			t.Errorf("%d replacements for one loss", n)
		}
		pass(time.Minute)
		s.expectRunning(web, 3)
	})
}
