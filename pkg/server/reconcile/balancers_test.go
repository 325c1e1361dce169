package reconcile_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

const (
	www   = "arn:www"
	extra = "arn:extra"
)

// balanced gives web a load balancer; its targets may be changed before it leads.
func (s *shard) balanced(targets ...string) {
	s.wanted.edit(web, func(g *fleet.Group) { g.LoadBalancers, g.DrainTimeout = []string{"www"}, time.Minute })
	s.define(targets...)
	s.adjust = func(c *reconcile.Config) {
		c.LoadBalancers = s.loadBalancers
	}
}

// over counts how often the problems of web were resolved.
func (s *shard) over() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.cleared[problems.ReasonLoadBalancer])
}

// define changes the targets of the load balancer www.
func (s *shard) define(targets ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets = targets
}

func (s *shard) loadBalancers() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string][]string{"www": s.targets}
}

// registered returns the provider ids that a target sends traffic to.
func (s *shard) registered(target string) []string {
	return slices.Sorted(maps.Keys(s.world.TargetHealth(target)))
}

// machines returns the provider ids of the group's records in a phase.
func (s *shard) machines(key fleet.GroupKey, phase fleet.Phase) []string {
	var ids []string
	for _, id := range s.records(key, phase) {
		r, _ := s.bucket.get(id)
		ids = append(ids, r.Provider.ID)
	}
	slices.Sort(ids)
	return ids
}

func (s *shard) expectRegistered(target string, want []string) {
	s.t.Helper()
	if got := s.registered(target); !slices.Equal(got, want) {
		s.t.Fatalf("registered with %s: %v, want %v: %s", target, got, want, s.dump())
	}
}

func TestRegisteredAfterTheFirstReport(t *testing.T) {
	bubble(t, fake.Config{AsideLatency: fake.Fixed(50 * time.Millisecond)}, func(t *testing.T, s *shard) {
		s.balanced(www, extra)
		s.size(web, 2)
		s.size(db, 1)
		s.agents.late = true
		s.lead()
		pass(5 * time.Second) // running, and not one report yet
		s.expectRunning(web, 2)
		s.expectRegistered(www, nil)
		pass(10 * time.Second)
		s.expectRegistered(www, s.machines(web, fleet.Running))
		s.expectRegistered(extra, s.machines(web, fleet.Running))
		pass(time.Hour)
		if n := len(s.world.Calls(fake.OpRegister)); n != 4 {
			t.Errorf("%d registrations, want one for each instance and target", n)
		}
	})
}

// TestLeavesTheLoadBalancerFirst: an instance that leaves is deregistered at the start of
// its drain, and in any case before its machine is deleted.
func TestLeavesTheLoadBalancerFirst(t *testing.T) {
	for _, drain := range []time.Duration{0, time.Minute} {
		t.Run(drain.String(), func(t *testing.T) {
			bubble(t, fake.Config{AsideLatency: fake.Fixed(2 * time.Second)}, func(t *testing.T, s *shard) {
				s.balanced(www)
				s.wanted.edit(web, func(g *fleet.Group) { g.DrainTimeout = drain })
				s.size(web, 4)
				s.lead()
				pass(time.Minute)
				s.expectRegistered(www, s.machines(web, fleet.Running))
				s.size(web, 1)
				pass(5 * time.Second)
				if drain > 0 {
					if n := len(s.records(web, fleet.Draining)); n != 3 {
						t.Fatalf("%d drain: %s", n, s.dump())
					}
					s.expectRegistered(www, s.machines(web, fleet.Running))
				}
				pass(2 * time.Minute)
				s.expectRunning(web, 1)
				s.expectRegistered(www, s.machines(web, fleet.Running))
				deleted := s.world.Calls(fake.OpDelete)
				if len(deleted) != 3 {
					t.Errorf("%d deletions", len(deleted))
				}
				for _, c := range deleted {
					if !s.deregisteredBy(c.Ref.ID, c.Start) {
						t.Errorf("%s was deleted before it was deregistered", c.Ref.ID)
					}
				}
			})
		})
	}
}

// deregisteredBy reports whether a deregistration had been answered by then.
func (s *shard) deregisteredBy(id fleet.InstanceID, at time.Time) bool {
	return slices.ContainsFunc(s.world.Calls(fake.OpDeregister), func(c fake.Call) bool {
		return c.Ref.ID == id && c.Err == nil && !c.End.IsZero() && !c.End.After(at)
	})
}

func TestDeadMachineIsDeregistered(t *testing.T) {
	bubble(t, fake.Config{}, func(_ *testing.T, s *shard) {
		s.balanced(www)
		s.size(web, 3)
		s.lead()
		pass(time.Minute)
		victim := s.expectRunning(web, 3)[0]
		s.world.Vanish(victim)
		pass(20 * time.Second)
		s.expectRunning(web, 3)
		s.expectRegistered(www, s.machines(web, fleet.Running))
	})
}

// TestTakeoverRegistersNobodyAgain: the next leader reads the registrations. It also completes
// what the last one left undone, and ignores VMs that it does not know.
func TestTakeoverRegistersNobodyAgain(t *testing.T) {
	bubble(t, fake.Config{AsideLatency: fake.Fixed(5 * time.Second)}, func(t *testing.T, s *shard) {
		s.balanced(www)
		s.world.PlantTarget(www, "foreign")
		s.size(web, 3)
		s.lead()
		pass(time.Minute)
		before := s.registered(www)
		if len(before) != 4 {
			t.Fatalf("registered: %v", before)
		}
		_ = s.stop()
		s.lead()
		pass(time.Minute)
		if n := len(s.world.Calls(fake.OpRegister)); n != 3 || len(s.world.Calls(fake.OpDeregister)) != 0 ||
			len(s.world.Calls(fake.OpTargets)) != 2 {
			t.Errorf("%d registrations after a takeover: %v", n, s.world.Calls(fake.OpRegister, fake.OpDeregister, fake.OpTargets))
		}
		s.expectRegistered(www, before)

		// A machine ends while no server leads, and another one was never registered.
		victim, lone := s.running(web)[0], s.running(web)[1]
		_ = s.stop()
		s.world.Vanish(victim)
		r, _ := s.bucket.get(lone)
		if err := s.world.Open(scope, "hand").Deregister(t.Context(), www, provider.Ref{ProviderID: r.Provider.ID}); err != nil {
			t.Fatal(err)
		}
		s.lead()
		pass(2 * time.Minute)
		s.expectRunning(web, 3)
		s.expectRegistered(www, append(s.machines(web, fleet.Running), "foreign"))
	})
}

// TestHourlyLookFindsWhatOthersDid: external changes are reverted.
func TestHourlyLookFindsWhatOthersDid(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.balanced(www)
		s.size(web, 1)
		s.lead()
		pass(time.Minute)
		s.expectRegistered(www, s.machines(web, fleet.Running))
		hand := s.world.Open(scope, "hand")
		if err := hand.Deregister(t.Context(), www, provider.Ref{ProviderID: s.registered(www)[0]}); err != nil {
			t.Fatal(err)
		}
		pass(61 * time.Minute)
		s.expectRegistered(www, s.machines(web, fleet.Running))
	})
}

func TestRegistrationsFollowTheConfig(t *testing.T) {
	bubble(t, fake.Config{}, func(_ *testing.T, s *shard) {
		s.balanced(www)
		s.size(web, 2)
		s.lead()
		pass(time.Minute)
		all := s.machines(web, fleet.Running)
		s.expectRegistered(www, all)
		s.define(extra)
		s.term.Enqueue()
		pass(10 * time.Second)
		s.expectRegistered(www, nil)
		s.expectRegistered(extra, all)

		// A definition that can't be read, or a removed group, changes nothing for existing
		// registrations.
		s.wanted.edit(web, func(g *fleet.Group) { g.LoadBalancers, g.Disabled = nil, "can't be read" })
		s.term.Enqueue()
		pass(10 * time.Second)
		s.expectRegistered(extra, all)
		s.wanted.edit(web, func(g *fleet.Group) { g.Disabled = "" })
		s.term.Enqueue()
		pass(10 * time.Second)
		s.expectRegistered(extra, nil)
	})
}

func TestMissingTargetIsNamedAndHoldsNothingUp(t *testing.T) {
	bubble(t, fake.Config{Targets: []string{www}}, func(t *testing.T, s *shard) {
		s.balanced(www, extra)
		s.size(web, 2)
		s.lead()
		pass(time.Minute)
		s.expectRunning(web, 2)
		s.expectRegistered(www, s.machines(web, fleet.Running))
		p := s.reported(problems.ReasonLoadBalancer)
		if len(p) == 0 || p[0].Group != web ||
			!strings.Contains(p[0].Message, "load_balancers.www.target_group_arns[1]") || !strings.Contains(p[0].Message, extra) {
			t.Fatalf("problems: %v", p)
		}
		s.size(web, 1)
		pass(2 * time.Minute)
		s.expectRunning(web, 1)
		if n := len(s.world.VMs()); n != 1 {
			t.Errorf("%d VMs: %s", n, s.dump())
		}
		if n := s.over(); n != 0 {
			t.Errorf("the problem was over %d times while it lasted", n)
		}
		s.world.AddTarget(extra)
		pass(6 * time.Minute)
		if n := s.over(); n != 1 {
			t.Errorf("the problem was over %d times", n)
		}
		s.expectRegistered(extra, s.machines(web, fleet.Running))
	})
}

// TestFailingLoadBalancerHoldsADeletionUpForAMinute and no longer; the calls are made when it
// answers again.
func TestFailingLoadBalancerHoldsADeletionUpForAMinute(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.balanced(www)
		s.wanted.edit(web, func(g *fleet.Group) { g.DrainTimeout = 0 })
		s.size(web, 2)
		s.lead()
		pass(time.Minute)
		s.world.FailNext(fake.OpDeregister, 8, fake.Fault{Err: provider.ErrThrottled}) // 0.5 s, 1 s, 2 s … 1 min
		s.size(web, 1)
		pass(50 * time.Second)
		if n := len(s.world.Calls(fake.OpDelete)); n != 0 {
			t.Errorf("%d deletions before the load balancer let go", n)
		}
		pass(15 * time.Second)
		if n := len(s.world.Calls(fake.OpDelete)); n != 1 || len(s.registered(www)) != 2 {
			t.Errorf("%d deletions after a minute", n)
		}
		p := s.reported(problems.ReasonLoadBalancer)
		if len(p) != 2 || p[0].Group != web || !strings.Contains(p[0].Message, "throttled") ||
			!strings.Contains(p[1].Message, "timed out; deleting it although") {
			t.Errorf("problems: %v", p)
		}
		pass(5 * time.Minute)
		s.expectRegistered(www, s.machines(web, fleet.Running))
		if n := s.over(); n != 1 {
			t.Errorf("the problem was over %d times", n)
		}
	})
}

// TestLostRegistrationIsUndone: an instance that may have been registered is
// deregistered when it leaves.
func TestLostRegistrationIsUndone(t *testing.T) {
	bubble(t, fake.Config{}, func(_ *testing.T, s *shard) {
		s.balanced(www)
		s.wanted.edit(web, func(g *fleet.Group) { g.DrainTimeout = 0 })
		s.world.FailNext(fake.OpRegister, 9, fake.Fault{Err: fake.ErrLost, Applied: true})
		s.size(web, 1)
		s.lead()
		pass(20 * time.Second)
		s.expectRegistered(www, s.machines(web, fleet.Running))
		s.size(web, 0)
		pass(5 * time.Second)
		s.expectRegistered(www, nil)
	})
}

// TestLostRepliesOfLoadBalancers end in the right registrations.
func TestLostRepliesOfLoadBalancers(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			cfg := fake.Config{Seed: seed, AsideLatency: fake.Span{Max: 3 * time.Second}, LandsAfterCancel: 0.5}
			for _, op := range []fake.Op{fake.OpRegister, fake.OpDeregister, fake.OpTargets} {
				cfg.Chances = append(cfg.Chances,
					fake.Chance{Op: op, Probability: 0.2, Fault: fake.Fault{Err: fake.ErrLost, Applied: true}},
					fake.Chance{Op: op, Probability: 0.2, Fault: fake.Fault{Err: fake.ErrLost}},
					fake.Chance{Op: op, Probability: 0.1, Fault: fake.Fault{Err: provider.ErrThrottled}})
			}
			bubble(t, cfg, func(_ *testing.T, s *shard) {
				s.balanced(www, extra)
				s.size(web, 6)
				s.lead()
				for n := range 12 {
					pass(7 * time.Second)
					switch ids := s.running(web); {
					case n%5 == 4:
						_ = s.stop()
						s.lead()
					case n%3 == 0 && len(ids) > 0:
						s.world.Kill(ids[n%len(ids)])
					default:
						s.size(web, 3+n%4)
					}
				}
				s.size(web, 4)
				pass(10 * time.Minute)
				s.expectRunning(web, 4)
				s.expectRegistered(www, s.machines(web, fleet.Running))
				s.expectRegistered(extra, s.machines(web, fleet.Running))
			})
		})
	}
}

func TestProviderWithoutLoadBalancersSaysSo(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.balanced(www)
		s.adjust = func(c *reconcile.Config) { plain(c); c.LoadBalancers = s.loadBalancers }
		s.size(web, 2)
		s.lead()
		pass(10 * time.Minute)
		s.expectRunning(web, 2)
		s.size(web, 0)
		pass(3 * time.Minute)
		if n := len(s.alive()); n != 0 {
			t.Errorf("%d live", n)
		}
		p := s.reported(problems.ReasonLoadBalancer)
		if len(p) != 1 || p[0].Group != web || !strings.Contains(p[0].Message, "www") ||
			!strings.Contains(p[0].Message, provider.ErrUnsupported.Error()) {
			t.Errorf("problems: %v", p)
		}
	})
}
