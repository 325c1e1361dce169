package reconcile_test

import (
	"context"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/plan"
)

// doomed is a group of two with a drain timeout of ten minutes; the first one is interrupted.
func doomed(s *shard) fleet.InstanceID {
	s.wanted.edit(web, func(g *fleet.Group) { g.Size, g.DrainTimeout = 2, 10*time.Minute })
	s.lead()
	pass(time.Minute)
	return s.expectRunning(web, 2)[0]
}

func announced(at time.Time) fleet.Report {
	return fleet.Report{At: time.Now(), Notice: &fleet.Notice{At: at}}
}

func (s *shard) creates() int { return len(s.world.Calls(fake.OpCreate)) }

// TestNoticeEndsTheDrainInTime: at the drain's deadline or the machine's end, whichever is
// earlier.
func TestNoticeEndsTheDrainInTime(t *testing.T) {
	for name, c := range map[string]struct {
		notice, drain, want time.Duration // from the report
	}{
		"the notice is first":   {2 * time.Minute, 10 * time.Minute, 2 * time.Minute},
		"the drain is first":    {time.Hour, 10 * time.Minute, 10 * time.Minute},
		"the notice has passed": {-time.Minute, 10 * time.Minute, 0},
		"no drain":              {2 * time.Minute, 0, 0},
		"no time":               {0, 10 * time.Minute, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				id := doomed(s)
				s.wanted.edit(web, func(g *fleet.Group) { g.DrainTimeout = c.drain })
				at := time.Time{}
				if name != "no time" {
					at = time.Now().Add(c.notice)
				}
				began := time.Now()
				s.term.AgentReport(id, announced(at))
				pass(time.Millisecond)
				if n := s.creates(); n != 3 {
					t.Errorf("%d creates, want the replacement at once", n-2)
				}
				r, _ := s.bucket.get(id)
				switch {
				case c.want > 0 && (r.Phase != fleet.Draining || r.Drain == nil || !r.Drain.DeleteAt.Equal(began.Add(c.want)) ||
					r.Drain.Reason != plan.ReasonNotice):
					t.Errorf("want it to drain for %s: %+v", c.want, r)
				case c.want == 0 && r.Phase != fleet.Deleting && r.Phase != fleet.Deleted:
					t.Errorf("want it to go at once: %+v", r)
				}
				pass(c.want + 5*time.Second)
				if r, _ := s.bucket.get(id); r.Phase != fleet.Deleted {
					t.Errorf("want it gone: %+v", r)
				}
				s.expectRunning(web, 2)
			})
		})
	}
}

// TestNoticesOfOneEndAreOne: the notice is repeated in every report, after a reconnect, by two
// sources, and to the next leader.
func TestNoticesOfOneEndAreOne(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		id := doomed(s)
		end := time.Now().Add(5 * time.Minute)
		repeat := func() {
			for range 10 {
				s.term.AgentReport(id, announced(end))
				s.term.AgentReport(id, announced(time.Time{}))
				s.term.AgentReport(id, announced(end.Add(time.Second)))
				pass(time.Second)
			}
		}
		repeat()
		s.agents.drop(s.term, id)
		pass(time.Second)
		s.agents.connect(s.term, id)
		repeat()
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		s.lead()
		repeat()
		pass(30 * time.Second)
		if n := s.creates(); n != 3 {
			t.Errorf("%d replacements of one machine: %s", n-2, s.dump())
		}
		if r, _ := s.bucket.get(id); r.Phase != fleet.Draining || !r.Drain.DeleteAt.Equal(end) {
			t.Errorf("want it to drain until %s: %+v", end, r)
		}
		s.expectRunning(web, 2)
		pass(5 * time.Minute)
		if r, _ := s.bucket.get(id); r.Phase != fleet.Deleted || s.creates() != 3 {
			t.Errorf("%d creates; want it gone: %+v", s.creates(), r)
		}
	})
}

// TestNoticeOfWhoLeavesAnyway: an instance that is leaving already is not replaced, and leaves no
// later than its machine.
func TestNoticeOfWhoLeavesAnyway(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		id := doomed(s)
		s.wanted.edit(web, func(g *fleet.Group) { g.Size, g.Leaving = 1, []fleet.InstanceID{id} })
		s.term.AgentReport(id, announced(time.Now().Add(3*time.Minute))) // in the same moment
		pass(time.Second)
		if r, _ := s.bucket.get(id); r.Phase != fleet.Draining || s.creates() != 2 {
			t.Fatalf("%d creates, %+v", s.creates(), r)
		}
		pass(time.Minute)
		s.term.AgentReport(id, announced(time.Now().Add(time.Minute)))
		pass(3 * time.Minute)
		if r, _ := s.bucket.get(id); r.Phase != fleet.Deleted || s.creates() != 2 {
			t.Errorf("%d creates, %+v", s.creates(), r)
		}
		s.term.AgentReport(id, announced(time.Now())) // a late report
		pass(time.Minute)
		if s.creates() != 2 {
			t.Errorf("a tombstone was replaced")
		}
		s.expectRunning(web, 1)
	})
}

// TestNoticeWhileDraining: a drain that was to last longer than the machine ends
// with it.
func TestNoticeWhileDraining(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		id := doomed(s)
		s.wanted.edit(web, func(g *fleet.Group) { g.Size, g.Leaving = 1, []fleet.InstanceID{id} })
		s.term.Enqueue(web)
		pass(time.Second)
		s.term.AgentReport(id, announced(time.Now().Add(2*time.Minute)))
		pass(119 * time.Second)
		if r, _ := s.bucket.get(id); r.Phase != fleet.Draining {
			t.Errorf("it went too soon: %+v", r)
		}
		pass(5 * time.Second)
		if r, _ := s.bucket.get(id); r.Phase != fleet.Deleted || s.creates() != 2 {
			t.Errorf("%d creates; want it gone with its machine: %+v", s.creates(), r)
		}
	})
}

// TestNoticeOfAnOnDemandInstance: it is drained, and not replaced.
func TestNoticeOfAnOnDemandInstance(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		id := doomed(s)
		if _, err := s.term.ledger.Update(context.Background(), id, func(i *fleet.Instance) error { i.OnDemand = true; return nil }); err != nil {
			t.Fatal(err)
		}
		s.term.Enqueue(web)
		pass(time.Minute)
		before := s.creates()
		s.expectRunning(web, 3) // the group's two, and this one
		s.term.AgentReport(id, announced(time.Now().Add(2*time.Minute)))
		pass(time.Minute)
		if r, _ := s.bucket.get(id); r.Phase != fleet.Draining || s.creates() != before {
			t.Errorf("%d creates, %+v", s.creates()-before, r)
		}
		pass(2 * time.Minute)
		if r, _ := s.bucket.get(id); r.Phase != fleet.Deleted || s.creates() != before {
			t.Errorf("%d creates, %+v", s.creates()-before, r)
		}
		s.expectRunning(web, 2)
	})
}

// TestNoticeAndShutdown: a notice and a shutdown of the agent, in either order, are one loss.
func TestNoticeAndShutdown(t *testing.T) {
	shutdown := fleet.Report{ShuttingDown: true}
	for name, say := range map[string]func(s *shard, id fleet.InstanceID, end time.Time){
		"notice, shutdown": func(s *shard, id fleet.InstanceID, end time.Time) {
			s.term.AgentReport(id, announced(end))
			pass(time.Second)
			s.term.AgentReport(id, shutdown)
		},
		"shutdown, notice": func(s *shard, id fleet.InstanceID, end time.Time) {
			s.term.AgentReport(id, shutdown)
			pass(time.Second)
			s.term.AgentReport(id, announced(end))
		},
		"both in one": func(s *shard, id fleet.InstanceID, end time.Time) {
			both := announced(end)
			both.ShuttingDown = true
			s.term.AgentReport(id, both)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				id := doomed(s)
				end := time.Now().Add(2 * time.Minute)
				shutdown.At = time.Now()
				say(s, id, end)
				s.agents.drop(s.term, id)
				pass(time.Second)
				if r, _ := s.bucket.get(id); r.Phase != fleet.Draining || s.creates() != 3 || r.Drain == nil || !r.Drain.DeleteAt.Equal(end) {
					t.Errorf("%d creates, %+v", s.creates()-2, r)
				}
				s.world.Kill(id) // before the announced time
				pass(5 * time.Second)
				if r, _ := s.bucket.get(id); r.Phase != fleet.Deleted || s.creates() != 3 {
					t.Errorf("%d creates; want the dead one gone: %+v", s.creates()-2, r)
				}
				s.expectRunning(web, 2)
			})
		})
	}
}
