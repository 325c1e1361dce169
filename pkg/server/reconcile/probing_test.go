package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

const settle = 2 * time.Minute

// failing is a group of ten whose machines have died young for a quarter of an hour. After cure
// new machines live.
func failing(s *shard) (cure func()) {
	s.wanted.settings.Settle = settle
	synctest.Wait()
	cure = s.mortal(web, 20*time.Second)
	s.size(web, 10)
	s.lead()
	pass(15 * time.Minute)
	c, ok := s.term.CreatesFailing(web)
	if !ok || c.Failures < 10 || c.Reason != problems.ReasonDied || !strings.Contains(c.Message, "vm-down") {
		s.t.Fatalf("not said to fail: %+v %s", c, s.dump())
	}
	return cure
}

// TestProbingIsOneAtATimeAndRare: and the problem is reported once, not for each probe.
func TestProbingIsOneAtATimeAndRare(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
		failing(s)
		calls := s.createsOf(web)[15:] // half of the group is replaced at once
		if n := len(calls); n < 5 || n > 16 {
			t.Errorf("%d creates after the first fifteen in a quarter of an hour", n)
		}
		for n := 1; n < len(calls); n++ {
			if d := calls[n].Start.Sub(calls[n-1].Start); d < 21*time.Second {
				t.Errorf("the probe before had %s to fail", d)
			}
		}
		if p := s.reported(problems.ReasonCreatesFailing); len(p) != 1 {
			t.Errorf("told %d times: %v", len(p), p)
		}
		if p := s.reported(problems.ReasonDied); len(p) > 1 {
			t.Errorf("each death is told: %v", p)
		}
	})
}

// TestTheWindowDoubles: one probe lives twice as long as those that died, then two do, each of which
// doubles the window.
func TestTheWindowDoubles(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
		cure := failing(s)
		before := len(s.createsOf(web))
		cure()
		pass(30 * time.Minute)
		s.expectRunning(web, 10)
		calls := s.createsOf(web)
		calls = calls[len(calls)-10:]
		var rounds []int
		for n, c := range calls {
			if n == 0 || c.Start.Sub(calls[n-1].Start) > 30*time.Second {
				rounds = append(rounds, 0)
			}
			rounds[len(rounds)-1]++
		}
		if !slices.Equal(rounds, []int{1, 2, 7}) || len(s.createsOf(web))-before > 11 {
			t.Errorf("created in rounds of %v, %d in all", rounds, len(s.createsOf(web))-before)
		}
		if c, ok := s.term.CreatesFailing(web); ok || !slices.Contains(s.solvedOf(), web) {
			t.Errorf("still said to fail: %+v", c)
		}
	})
}

// TestAnotherImageIsTriedAtOnce: a changed Infra hash resets the failure window.
func TestAnotherImageIsTriedAtOnce(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		cure := failing(s)
		cure()
		s.wanted.edit(web, func(g *fleet.Group) { g.Hashes.Infra = "i2" })
		s.term.Enqueue(web)
		pass(5 * time.Second)
		if n := len(s.records(web, fleet.Running)); n < 9 {
			t.Errorf("%d running right after the change", n)
		}
		if c, ok := s.term.CreatesFailing(web); ok {
			t.Errorf("still said to fail: %+v", c)
		}
	})
}

// fiveSettled lets five instances of web settle; later machines die young.
func fiveSettled(s *shard) []fleet.InstanceID {
	s.wanted.settings.Settle = settle
	s.size(web, 5)
	s.lead()
	pass(10 * time.Minute)
	settled := s.expectRunning(web, 5)
	s.mortal(web, 20*time.Second)
	return settled
}

// TestLossOfASettledOneIsMadeUpForAtOnce: even while the group's creates fail; the replacement of
// the replacement waits.
func TestLossOfASettledOneIsMadeUpForAtOnce(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
		settled := fiveSettled(s)
		for n, victim := range settled[:3] {
			before := s.creates()
			s.world.Kill(victim)
			pass(500 * time.Millisecond)
			if s.creates() != before+1 {
				t.Errorf("loss %d of a settled one: %d creates at once", n, s.creates()-before)
			}
			pass(4 * time.Minute)
		}
		if _, ok := s.term.CreatesFailing(web); !ok {
			t.Fatalf("not said to fail: %s", s.dump())
		}
		began := s.creates()
		pass(time.Hour)
		if n := s.creates() - began; n > 30 {
			t.Errorf("%d creates in an hour", n)
		}
		s.expectIn(t, settled[3:])
	})
}

// TestReplacementThatIsPutOffStaysDueAtOnce: the immediate replacement that the provider throttles
// for long is retried as soon as it accepts calls, without the back-off of its failing group.
func TestReplacementThatIsPutOffStaysDueAtOnce(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
		settled := fiveSettled(s)
		for _, victim := range settled[:3] {
			s.world.Kill(victim)
			pass(4 * time.Minute)
		}
		waits := func() time.Duration { // until the next probe
			c, _ := s.term.CreatesFailing(web)
			return time.Until(c.Next)
		}
		for n := 0; waits() < 3*time.Minute; n++ {
			if n > 3600 {
				t.Fatalf("no long wait: %s", s.dump())
			}
			pass(time.Second)
		}
		s.world.FailNext(fake.OpCreate, 10_000, fake.Fault{Err: provider.ErrThrottled})
		s.world.Kill(settled[3])
		pass(time.Minute)
		s.world.Mend()
		before := s.creates()
		pass(10 * time.Second)
		if s.creates() == before {
			t.Errorf("not asked for although the provider takes calls again: %s", s.dump())
		}
	})
}

func (s *shard) expectIn(t *testing.T, ids []fleet.InstanceID) {
	t.Helper()
	for _, id := range ids {
		if !slices.Contains(s.running(web), id) {
			t.Errorf("%s does not run any more: %s", id, s.dump())
		}
	}
}

// TestNextLeaderKnowsThatCreatesFail: from the records.
func TestNextLeaderKnowsThatCreatesFail(t *testing.T) {
	for name, doom := range map[string]func(*shard){
		"deaths": func(s *shard) { s.mortal(web, 20*time.Second) },
		"refusals": func(s *shard) {
			s.adjust = func(c *reconcile.Config) {
				c.Provider = refusing{s.world.Open(scope, "a"), func(string) bool { return true }}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				s.wanted.settings.Settle = settle
				doom(s)
				s.size(web, 10)
				s.lead()
				pass(15 * time.Minute)
				built := s.attempts()
				for range 5 {
					_ = s.stop()
					s.lead()
					pass(10 * time.Second)
					if _, ok := s.term.CreatesFailing(web); !ok {
						t.Fatalf("the next leader does not know: %s", s.dump())
					}
				}
				if n := s.attempts() - built; n > 6 {
					t.Errorf("%d creates by five leaders", n)
				}
			})
		})
	}
}

// TestNextLeaderKnowsHoursOfEarlyEnds: what ended early counts for a day, also if the leader changes
// when the retention of the tombstones is long over. They are pruned when the group has recovered.
func TestNextLeaderKnowsHoursOfEarlyEnds(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.wanted.settings.Settle = settle
		cure := s.mortal(web, 20*time.Second)
		s.size(web, 100)
		s.lead()
		pass(3 * time.Hour)
		built := s.attempts()
		_ = s.stop()
		s.lead()
		pass(10 * time.Second)
		if _, ok := s.term.CreatesFailing(web); !ok || s.attempts() > built+1 {
			t.Errorf("said to fail: %v; %d creates by the next leader", ok, s.attempts()-built)
		}
		if n := len(s.records(web, fleet.Deleted)); n > 110 {
			t.Errorf("%d tombstones are kept", n)
		}
		cure()
		pass(2 * time.Hour)
		s.expectRunning(web, 100)
		if n := len(s.records(web, fleet.Deleted)); n > 0 {
			t.Errorf("%d tombstones of a group that has recovered", n)
		}
	})
}

// attempts counts the instances that were to be created.
func (s *shard) attempts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.built)
}

// TestEndsThatTellNothingOfCreates: instances that are removed young on request, or interrupted by
// the provider.
func TestEndsThatTellNothingOfCreates(t *testing.T) {
	for name, end := range map[string]func(*shard, fleet.InstanceID){
		"the provider takes it": func(s *shard, id fleet.InstanceID) { s.term.AgentReport(id, announced(time.Now().Add(time.Minute))) },
		"it was asked to leave": func(s *shard, id fleet.InstanceID) {
			s.wanted.edit(web, func(g *fleet.Group) { g.Leaving = append(g.Leaving, id) })
			s.term.Enqueue(web)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				s.wanted.settings.Settle = settle
				s.size(web, 2)
				s.lead()
				for range 10 {
					pass(5 * time.Second)
					end(s, s.expectRunning(web, 2)[0])
				}
				pass(5 * time.Second)
				s.expectRunning(web, 2)
				if c, ok := s.term.CreatesFailing(web); ok {
					t.Errorf("said to fail: %+v", c)
				}
			})
		})
	}
}

// TestRefusalsEndWithAnAcceptedCreate, not only when its instance has settled.
func TestRefusalsEndWithAnAcceptedCreate(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
		s.wanted.settings.Settle = settle
		synctest.Wait()
		s.world.FailNext(fake.OpCreate, 25, fake.Fault{Err: provider.ErrQuota})
		s.size(web, 20)
		s.lead()
		pass(10 * time.Second)
		c, ok := s.term.CreatesFailing(web)
		if !ok || c.Reason != problems.ReasonQuota || !strings.Contains(c.Message, "capacity used up") {
			t.Errorf("said to fail: %v %+v", ok, c)
		}
		s.world.Mend()
		pass(30 * time.Second)
		s.expectRunning(web, 20)
		if c, ok := s.term.CreatesFailing(web); ok || !slices.Contains(s.solvedOf(), web) {
			t.Errorf("still said to fail: %+v", c)
		}
	})
}

// TestGroupThatIsGoneHasNoCreatesThatFail: the group is forgotten with its last record.
func TestGroupThatIsGoneHasNoCreatesThatFail(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		failing(s)
		s.wanted.edit(web, func(g *fleet.Group) { g.Removed = true })
		s.term.Enqueue(web)
		pass(time.Hour)
		if n := len(s.records(web, fleet.Deleted)); n > 0 {
			t.Fatalf("%d tombstones", n)
		}
		if c, ok := s.term.CreatesFailing(web); ok || !slices.Contains(s.solvedOf(), web) {
			t.Errorf("still said to fail: %+v", c)
		}
	})
}

// TestGroupOfNoneHasNoCreatesThatFail: scaling to zero ends the problem, and a group that is scaled
// up again starts without failures.
func TestGroupOfNoneHasNoCreatesThatFail(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		failing(s)
		s.size(web, 0)
		pass(time.Second)
		if c, ok := s.term.CreatesFailing(web); ok || !slices.Contains(s.solvedOf(), web) {
			t.Errorf("still said to fail: %+v", c)
		}
	})
}

func (s *shard) solvedOf() []fleet.GroupKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.cleared[problems.ReasonCreatesFailing])
}

// unanswering is a provider that answers no create.
type unanswering struct {
	*fake.Provider
	asked chan fleet.InstanceID
}

func (p unanswering) Create(_ context.Context, spec provider.Spec) (provider.VM, error) {
	p.asked <- spec.ID
	time.Sleep(10 * time.Second)
	return provider.VM{}, errors.New("no answer")
}

// TestOnDemandWaitsForNoProbe: on-demand creates don't wait for the probes of their failing group.
func TestOnDemandWaitsForNoProbe(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		p := unanswering{s.world.Open(scope, "a"), make(chan fleet.InstanceID, 10_000)}
		s.adjust = func(c *reconcile.Config) { c.CreateBackoff, c.Provider = 20*time.Second, p }
		var keys []fleet.GroupKey
		for n := range 30 {
			keys = append(keys, fleet.GroupKey{Tenant: "default", Name: fmt.Sprintf("bad-%02d", n)})
			s.size(keys[n], 2)
		}
		s.lead()
		pass(4 * time.Minute)
		for _, key := range keys[:5] {
			if _, ok := s.term.CreatesFailing(key); !ok {
				t.Fatalf("%s is not said to fail", key)
			}
			id := s.demand(key)
			pass(time.Second)
			asked := false
			for len(p.asked) > 0 {
				asked = <-p.asked == id || asked
			}
			if !asked {
				t.Errorf("the on-demand instance of %s waits", key)
			}
		}
	})
}
