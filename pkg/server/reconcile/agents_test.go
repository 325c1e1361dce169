package reconcile_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// An agent that reports a longer interval than is configured now does not count as silent.
func TestAgentThatReportsMoreRarelyThanConfigured(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.wanted.mu.Lock()
		s.wanted.settings.ReportInterval = time.Minute
		s.wanted.mu.Unlock()
		s.size(web, 1)
		s.lead()
		pass(10 * time.Second)
		id := s.expectRunning(web, 1)[0]
		s.term.AgentReport(id, fleet.Report{At: time.Now(), ReportInterval: time.Minute})
		s.wanted.mu.Lock()
		s.wanted.settings.ReportInterval = 10 * time.Second
		s.wanted.mu.Unlock()
		s.term.Enqueue()
		pass(45 * time.Second)
		if n := len(s.world.Calls(fake.OpCreate)); n != 1 {
			t.Errorf("%d creates, want none but the first", n)
		}
		if h := s.term.Health(id); h.Unhealthy != "" {
			t.Errorf("unhealthy: %q", h.Unhealthy)
		}
	})
}

// Only the first termination notice counts, and the first one with a time.
func TestAgentThatAnnouncesEndlessly(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		changes := 0
		s.adjust = func(c *reconcile.Config) {
			c.Changed = func(fleet.GroupKey, fleet.InstanceID) { s.mu.Lock(); changes++; s.mu.Unlock() }
		}
		s.wanted.edit(web, func(g *fleet.Group) { g.Size, g.DrainTimeout = 1, time.Hour })
		s.lead()
		pass(time.Minute)
		id := s.expectRunning(web, 1)[0]
		s.term.AgentReport(id, fleet.Report{At: time.Now(), Notice: &fleet.Notice{}})
		end := time.Now().Add(30 * time.Minute)
		s.term.AgentReport(id, fleet.Report{At: time.Now(), Notice: &fleet.Notice{At: end}})
		pass(time.Minute)
		s.mu.Lock()
		before := changes
		s.mu.Unlock()
		for n := range 1000 {
			s.term.AgentReport(id, fleet.Report{At: time.Now(), Notice: &fleet.Notice{At: end.Add(time.Duration(-n) * time.Second)}})
		}
		pass(time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		if changes != before {
			t.Errorf("%d changes from one agent's word", changes-before)
		}
		if r, _ := s.bucket.get(id); r.Drain == nil {
			t.Errorf("not drained: %+v", r)
		}
	})
}
