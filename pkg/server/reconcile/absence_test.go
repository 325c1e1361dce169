package reconcile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// blinded makes all servers use one provider that can be blinded.
func (s *shard) blinded(consistent bool) *blindProvider {
	blind := &blindProvider{Provider: s.world.Open(scope, "blind"), consistent: consistent}
	s.adjust = func(c *reconcile.Config) { c.Provider = blind }
	return blind
}

func (s *shard) deletes() int { return len(s.world.Calls(fake.OpDelete)) }

// If reads lag, a VM that vanished is replaced after the second poll, whether its agent's
// stream broke or not; if they are consistent, after the first.
func TestVanishedVMIsReplacedAfterASecondLook(t *testing.T) {
	for _, c := range []struct {
		consistent bool
		lag        time.Duration
		early      time.Duration // no replacement until then
		late       time.Duration // one by then
	}{
		{false, 0, 1900 * time.Millisecond, 2100 * time.Millisecond},
		{false, 500 * time.Millisecond, 1900 * time.Millisecond, 3 * time.Second},
		{true, 0, 0, time.Millisecond},
	} {
		t.Run(fmt.Sprintf("consistent=%v,lag=%v", c.consistent, c.lag), func(t *testing.T) {
			bubble(t, fake.Config{Lag: fake.Span{Max: c.lag}}, func(t *testing.T, s *shard) {
				s.blinded(c.consistent)
				s.size(web, 2)
				s.lead()
				pass(5 * time.Second) // young, but registered
				s.world.Vanish(s.expectRunning(web, 2)[0])
				pass(c.early)
				if n := s.creates(); c.early > 0 && n != 2 {
					t.Errorf("%d replacements after one answer", n-2)
				}
				pass(c.late - c.early)
				if n := s.creates(); n != 3 {
					t.Errorf("%d replacements after %v, want 1", n-2, c.late)
				}
				pass(10 * time.Second)
				s.expectRunning(web, 2)
			})
		})
	}
}

// A single not-found answer never removes an instance, whatever the stream says.
func TestOneStaleAnswerKillsNobody(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		blind := s.blinded(false)
		s.size(web, 2)
		s.lead()
		pass(3*time.Minute - time.Second) // the next sweep comes after 4:30
		ids := s.expectRunning(web, 2)
		blind.setBlind(true)
		s.agents.drop(s.term, ids[0])
		pass(time.Second)
		blind.setBlind(false)
		s.agents.connect(s.term, ids[0])
		pass(30 * time.Second)
		blind.setBlind(true)
		pass(time.Minute + time.Second) // with a sweep that finds none of them
		blind.setBlind(false)
		pass(10 * time.Minute)
		if now := s.expectRunning(web, 2); !slices.Equal(now, ids) || s.deletes() != 0 {
			t.Errorf("%d creates and %d deletes: %s", s.creates(), s.deletes(), s.dump())
		}
		for _, id := range ids {
			if h := s.term.Health(id); h.Unhealthy != "" {
				t.Errorf("%s is unhealthy: %s", id, h.Unhealthy)
			}
		}
	})
}

// A registered machine that vanished while no server ran, soon after its create.
func TestYoungDeathDuringAFailover(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.blinded(true)
		s.size(web, 2)
		s.lead()
		pass(5 * time.Second)
		id := s.expectRunning(web, 2)[0]
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		s.world.Vanish(id)
		s.lead()
		pass(time.Millisecond)
		if n := s.creates(); n != 3 {
			t.Errorf("%d replacements, want 1 at once", n-2)
		}
	})
}

// The same in a shard of one or two machines, of which all are not found.
func TestSmallShardWhoseProviderLooksAtAnotherWorldHolds(t *testing.T) {
	for _, size := range []int{1, 2} {
		for _, takeover := range []bool{true, false} {
			t.Run(fmt.Sprintf("size=%d,takeover=%v", size, takeover), func(t *testing.T) {
				bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
					blind := s.blinded(true)
					s.size(web, size)
					s.lead()
					pass(3 * time.Minute)
					ids := s.expectRunning(web, size)
					blind.setBlind(true)
					if takeover {
						_ = s.stop()
						s.lead()
					}
					pass(10 * time.Minute)
					if s.creates() != size || s.deletes() != 0 {
						t.Errorf("%d creates and %d deletes, want %d and 0: %s", s.creates(), s.deletes(), size, s.dump())
					}
					if s.term.held().Reason != problems.ReasonAbsent {
						t.Errorf("held %+v", s.term.held())
					}
					blind.setBlind(false)
					pass(3 * time.Minute)
					if now := s.expectRunning(web, size); !slices.Equal(now, ids) || s.term.held().Message != "" {
						t.Errorf("want the same, and no hold: %q", s.term.held().Message)
					}
				})
			})
		}
	}
}

// A misconfigured provider finds no machine while agents are connected: nothing is created or
// deleted, and a problem is reported.
func TestProviderThatLooksAtAnotherWorldHolds(t *testing.T) {
	for _, c := range []struct {
		consistent, takeover bool
	}{{true, false}, {false, false}, {true, true}, {false, true}} {
		t.Run(fmt.Sprintf("consistent=%v,takeover=%v", c.consistent, c.takeover), func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				blind := s.blinded(c.consistent)
				s.size(web, 4)
				s.size(db, 1)
				s.lead()
				pass(3 * time.Minute)
				ids := s.expectRunning(web, 4)
				if c.takeover {
					_ = s.stop()
				}
				blind.setBlind(true)
				if c.takeover {
					s.lead()
				} else {
					pass(2 * time.Minute)
				}
				s.size(db, 3)
				pass(10 * time.Minute)
				if s.creates() != 5 || s.deletes() != 0 {
					t.Errorf("%d creates and %d deletes, want 5 and 0: %s", s.creates(), s.deletes(), s.dump())
				}
				found := s.reported(problems.ReasonAbsent)
				if len(found) < 4 || len(found) > 6 || s.term.held().Reason != problems.ReasonAbsent {
					t.Fatalf("held %+v, problems %v; want one for each sweep", s.term.held(), found)
				}
				for _, part := range []string{"5 of this shard's 5", "the agents of 5", string(ids[0]), "credentials", "region", "engine"} {
					if text := found[len(found)-1].Message; !strings.Contains(text, part) {
						t.Errorf("the problem does not tell %q: %s", part, text)
					}
				}
				blind.setBlind(false)
				pass(3 * time.Minute)
				if now := s.expectRunning(web, 4); !slices.Equal(now, ids) || s.term.held().Message != "" || s.deletes() != 0 {
					t.Errorf("want the same again, and no hold %+v: %s", s.term.held(), s.dump())
				}
				s.expectRunning(db, 3) // what waited
				if over := s.ended(); !slices.Equal(over, []string{problems.ReasonAbsent}) {
					t.Errorf("told of the end of %q", over)
				}
			})
		})
	}
}

// When all agents of a held shard disconnect, the machines count as gone.
func TestHoldEndsWithTheLastStream(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.blinded(true)
		s.size(web, 4)
		s.lead()
		pass(4*time.Minute + 25*time.Second) // just before a sweep
		ids := s.expectRunning(web, 4)
		s.agents.mu.Lock()
		s.agents.open = map[fleet.InstanceID]bool{} // without AgentDisconnected
		s.agents.mu.Unlock()
		for _, id := range ids {
			s.world.Vanish(id)
		}
		pass(10 * time.Second)
		if s.term.held().Message == "" || s.creates() != 4 {
			t.Fatalf("held %+v after %d creates", s.term.held(), s.creates())
		}
		for _, id := range ids {
			s.term.AgentDisconnected(id, time.Now())
		}
		pass(29 * time.Second)
		if n := s.creates(); n != 4 {
			t.Errorf("%d replacements while the agents may come back", n-4)
		}
		pass(2 * time.Second)
		if n := s.creates(); n != 8 || s.term.held().Message != "" {
			t.Errorf("%d replacements, want 4; held %+v", n-4, s.term.held())
		}
		pass(10 * time.Second)
		s.expectRunning(web, 4)
	})
}

// Many VMs that vanish at once together with their agents are replaced at once, without a
// problem.
func TestMassLossIsReplaced(t *testing.T) {
	for _, c := range []struct {
		consistent bool
		within     time.Duration
	}{{true, time.Millisecond}, {false, 2100 * time.Millisecond}} {
		t.Run(fmt.Sprintf("consistent=%v", c.consistent), func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				s.blinded(c.consistent)
				s.size(web, 9)
				s.lead()
				pass(3 * time.Minute)
				for _, id := range s.expectRunning(web, 9) {
					s.world.Vanish(id)
				}
				pass(c.within)
				if n := s.creates(); n != 18 {
					t.Errorf("%d replacements, want 9", n-9)
				}
				pass(10 * time.Second)
				s.expectRunning(web, 9)
				if p := s.reported(problems.ReasonAbsent); len(p) != 0 {
					t.Errorf("the administrator is asked: %v", p)
				}
			})
		})
	}
}

// After a takeover all streams are closed, so silence does not count for a while; after that a
// large loss is real.
func TestMassLossDuringAFailover(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.blinded(true)
		s.size(web, 5)
		s.lead()
		pass(3 * time.Minute)
		ids := s.expectRunning(web, 5)
		_ = s.stop()
		for _, id := range ids {
			s.world.Vanish(id)
		}
		s.lead()
		pass(29 * time.Second)
		if n := s.creates(); n != 5 {
			t.Errorf("%d replacements before the agents could speak", n-5)
		}
		pass(2 * time.Second)
		if n := s.creates(); n != 10 || len(s.reported(problems.ReasonAbsent)) != 0 {
			t.Errorf("%d replacements, want 5: %s", n-5, s.dump())
		}
		pass(10 * time.Second)
		s.expectRunning(web, 5)
		if r, _ := s.bucket.get(ids[0]); r.Reason != plan.ReasonVMGone {
			t.Errorf("it went because of %q", r.Reason)
		}
	})
}

// A stale answer does not bring back a VM whose end was shown.
func TestEndThatWasShownIsNotTakenBack(t *testing.T) {
	bubble(t, fake.Config{Lag: fake.Span{Max: 3 * time.Second}, Remember: time.Minute}, func(t *testing.T, s *shard) {
		s.adjust = withoutWatch
		s.size(web, 3)
		s.lead()
		pass(2 * time.Minute)
		s.bucket.mu.Lock()
		s.bucket.fail = func(string, fleet.InstanceID) (bool, error) { return false, errStoreDown } // nothing can be done about it
		s.bucket.mu.Unlock()
		id := s.expectRunning(web, 3)[0]
		s.world.Kill(id)
		down := 0
		for n := range 60 {
			s.term.AgentConnected(id) // contradicts the provider: the VM is polled again
			s.term.AgentDisconnected(id, time.Now())
			pass(50 * time.Millisecond)
			if vm := s.term.Health(id).VM; vm == provider.StateStopped {
				down++
			} else if down > 0 {
				t.Fatalf("%s after look %d, after %d that showed the end", vm, n, down)
			}
		}
		if down < 30 {
			t.Errorf("only %d looks after the first that showed the end: that shows nothing", down)
		}
	})
}
