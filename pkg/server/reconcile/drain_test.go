package reconcile_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/plan"
)

// departure is a reason to drain, and how to cause it for an instance of web, which has two.
type departure struct {
	reason string
	cause  func(s *shard, id fleet.InstanceID)
	size   int // afterwards
}

func departures() map[string]departure {
	edit := func(change func(*fleet.Group, fleet.InstanceID)) func(*shard, fleet.InstanceID) {
		return func(s *shard, id fleet.InstanceID) {
			s.wanted.edit(web, func(g *fleet.Group) { change(g, id) })
			s.term.Enqueue(web)
		}
	}
	return map[string]departure{
		"unhealthy": {plan.ReasonUnhealthy, func(s *shard, id fleet.InstanceID) { s.agents.drop(s.term, id) }, 2},
		"expiry": {plan.ReasonExpired, func(s *shard, _ fleet.InstanceID) {
			s.wanted.age(func(set *plan.Settings) { set.EligibleAge = 2 * time.Minute })
			s.term.Enqueue()
		}, 2},
		"forced expiry": {plan.ReasonForcedExpiry, func(s *shard, _ fleet.InstanceID) {
			s.wanted.age(func(set *plan.Settings) { set.ForcedAge = 2 * time.Minute })
			s.term.Enqueue()
		}, 2},
		"rotation": {plan.ReasonDrift, edit(func(g *fleet.Group, _ fleet.InstanceID) { g.Hashes.Infra = "i2" }), 2},
		"scale-in": {plan.ReasonScaleDown, edit(func(g *fleet.Group, _ fleet.InstanceID) { g.Size = 1 }), 1},
		"chosen": {plan.ReasonLeaving,
			edit(func(g *fleet.Group, id fleet.InstanceID) { g.Size, g.Leaving = 1, []fleet.InstanceID{id} }), 1},
		"removed":      {plan.ReasonGroupRemoved, edit(func(g *fleet.Group, _ fleet.InstanceID) { g.Removed = true }), 0},
		"deleted":      {plan.ReasonReplaceAsked, (*shard).askOut, 2},
		"notice":       {plan.ReasonNotice, func(s *shard, id fleet.InstanceID) { s.term.AgentReport(id, announced(time.Time{})) }, 2},
		"deleted, own": {plan.ReasonDeleteAsked, func(s *shard, id fleet.InstanceID) { _ = s.change(id, ownOnDemand); s.askOut(id) }, 2},
		"expiry, own": {plan.ReasonOnDemandExpired, func(s *shard, id fleet.InstanceID) {
			_ = s.change(id, ownOnDemand)
			s.wanted.age(func(set *plan.Settings) { set.OnDemandAge = 2 * time.Minute })
			s.term.Enqueue()
		}, 2},
	}
}

func ownOnDemand(i *fleet.Instance) { i.OnDemand = true }

// age changes the settings without notifying the loop.
func (w *wanted) age(change func(*plan.Settings)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.settings)
}

// awaitDrain waits until an instance leaves, and returns its drain.
func awaitDrain(s *shard, id fleet.InstanceID) fleet.Drain {
	s.t.Helper()
	for range 300 {
		if r, _ := s.bucket.get(id); r.Phase == fleet.Draining {
			if !s.isAlive(id) {
				s.t.Errorf("it drains without a machine: %s", s.dump())
			}
			return *r.Drain
		}
		pass(time.Second)
	}
	s.t.Fatalf("%s does not drain: %s", id, s.dump())
	return fleet.Drain{}
}

// TestEveryDepartureDrains: a drain ends after the group's timeout, when it is acknowledged, or
// with the machine; also under the next leader.
func TestEveryDepartureDrains(t *testing.T) {
	ends := map[string]func(s *shard, id fleet.InstanceID, d fleet.Drain){
		"due": func(s *shard, id fleet.InstanceID, d fleet.Drain) {
			pass(time.Until(d.DeleteAt) - time.Second)
			s.expectPhase(id, fleet.Draining)
			pass(2 * time.Second)
		},
		"acknowledged": func(s *shard, id fleet.InstanceID, _ fleet.Drain) {
			pass(time.Minute)
			s.expectPhase(id, fleet.Draining)
			_ = s.change(id, func(i *fleet.Instance) { i.Drain.AckedAt = new(time.Now()) })
			pass(time.Millisecond)
		},
		"the machine dies": func(s *shard, id fleet.InstanceID, _ fleet.Drain) {
			pass(time.Minute)
			s.expectPhase(id, fleet.Draining)
			s.world.Kill(id)
			pass(time.Second)
		},
		"due under the next leader": func(s *shard, id fleet.InstanceID, d fleet.Drain) {
			pass(time.Minute)
			_ = s.stop()
			pass(30 * time.Second)
			s.lead()
			pass(time.Until(d.DeleteAt) - time.Second)
			s.expectPhase(id, fleet.Draining)
			if r, _ := s.bucket.get(id); r.Drain == nil || *r.Drain != d {
				s.t.Errorf("the drain is now %+v, was %+v", r.Drain, d)
			}
			pass(2 * time.Second)
		},
		"due without a leader": func(s *shard, _ fleet.InstanceID, d fleet.Drain) {
			_ = s.stop()
			pass(time.Until(d.DeleteAt) + time.Minute)
			s.lead()
			pass(time.Second)
		},
		"acknowledged as the leader died": func(s *shard, id fleet.InstanceID, _ fleet.Drain) {
			if r, ok := s.bucket.get(id); ok {
				_ = s.stop()
				r.Drain.AckedAt = new(time.Now())
				s.bucket.place(r)
			}
			s.lead()
			pass(time.Second)
		},
	}
	for why, d := range departures() {
		for how, end := range ends {
			t.Run(why+"/"+how, func(t *testing.T) {
				bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
					id := doomed(s)
					d.cause(s, id)
					drain := awaitDrain(s, id)
					if left := time.Until(drain.DeleteAt); drain.Reason != d.reason || left > 10*time.Minute || left < 10*time.Minute-2*time.Second {
						t.Errorf("it drains because of %q, for %s", drain.Reason, left)
					}
					end(s, id, drain)
					s.expectPhase(id, fleet.Deleting, fleet.Deleted)
					if r, _ := s.bucket.get(id); r.Reason != d.reason {
						t.Errorf("it went because of %q", r.Reason)
					}
					s.wanted.age(func(set *plan.Settings) { set.EligibleAge, set.ForcedAge = 0, 0 })
					s.term.Enqueue()
					pass(time.Hour)
					s.expectRunning(web, d.size)
				})
			})
		}
	}
}

// TestNoDrainWithoutTimeout: the instance is deleted at once.
func TestNoDrainWithoutTimeout(t *testing.T) {
	for why, d := range departures() {
		t.Run(why, func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				id := doomed(s)
				s.wanted.edit(web, func(g *fleet.Group) { g.DrainTimeout = 0 })
				s.bucket.onWrite = func(op string, i fleet.Instance) {
					if op == "update-draining" {
						t.Errorf("%s drains", i.ID)
					}
				}
				d.cause(s, id)
				pass(3 * time.Minute)
				if r, _ := s.bucket.get(id); r.Phase != fleet.Deleted || r.Reason != d.reason {
					t.Errorf("it is %s because of %q, want it gone because of %q", r.Phase, r.Reason, d.reason)
				}
			})
		})
	}
}

// expectPhase fails unless the record is in one of the phases.
func (s *shard) expectPhase(id fleet.InstanceID, want ...fleet.Phase) {
	s.t.Helper()
	got := s.phase(id)
	for _, p := range want {
		if got == p {
			return
		}
	}
	s.t.Errorf("%s is %s, want %s: %s", id, got, want, s.dump())
}
