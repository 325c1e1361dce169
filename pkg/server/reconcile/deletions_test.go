package reconcile_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// sluggishProvider accepts deletes and carries none of them out, unless told to.
type sluggishProvider struct {
	*fake.Provider

	mu    sync.Mutex
	awake bool
	asked []time.Time
}

func (p *sluggishProvider) Delete(ctx context.Context, refs []provider.Ref) []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.awake {
		return p.Provider.Delete(ctx, refs)
	}
	p.asked = append(p.asked, time.Now())
	return make([]error, len(refs))
}

// lasting returns the instances of lasting problems with a reason.
func (s *shard) lasting(reason string) (ids []fleet.InstanceID) {
	for _, p := range s.term.lasting() {
		if p.Reason == reason {
			ids = append(ids, p.Instance)
		}
	}
	return ids
}

func TestDeleteWithoutEffect(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		p := &sluggishProvider{Provider: s.world.Open(scope, "server-1")}
		s.adjust = func(c *reconcile.Config) {
			c.Provider = p
			c.CreateRate.Concurrency = 1 // one delete at a time
		}
		s.size(web, 2)
		s.lead()
		pass(time.Minute)
		ids := s.expectRunning(web, 2)
		s.size(web, 0)
		pass(9*time.Minute + 50*time.Second)
		if n := s.told(); n != 0 {
			t.Errorf("%d problems in the first ten minutes: %s", n, s.dump())
		}
		pass(20 * time.Second)
		told := s.reported(problems.ReasonDeleteStuck)
		if len(told) != 2 || told[0].Group != web || !slices.Contains(ids, told[0].Instance) ||
			!strings.Contains(told[0].Message, "had no effect") {
			t.Fatalf("told: %v", told)
		}
		if got := s.lasting(problems.ReasonDeleteStuck); !slices.Equal(got, ids) {
			t.Errorf("lasting: %v, want %v", got, ids)
		}
		pass(50 * time.Minute)
		if n := len(s.reported(problems.ReasonDeleteStuck)); n != 4 {
			t.Errorf("told %d times in an hour, want twice of each", n)
		}
		// 0, 0.5, 1.5, 3.5, 7.5, 12.5, 17.5 … minutes, for each.
		p.mu.Lock()
		if n := len(p.asked); n < 28 || n > 34 {
			t.Errorf("%d deletes in an hour: %v", n, p.asked)
		}
		p.mu.Unlock()
		s.size(web, 1) // a success of the group says nothing about them
		pass(time.Minute)
		s.expectRunning(web, 1)
		if n := len(s.lasting(problems.ReasonDeleteStuck)); n != 2 {
			t.Errorf("%d last, want 2", n)
		}
		p.mu.Lock()
		p.awake = true
		p.mu.Unlock()
		pass(6 * time.Minute)
		if n := len(s.term.lasting()); n != 0 || len(s.records(web, fleet.Deleted)) != 2 {
			t.Errorf("%d last although the machines are gone: %s", n, s.dump())
		}
	})
}

func TestDeleteRefusedForGood(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 2)
		s.lead()
		pass(time.Minute)
		s.world.FailNext(fake.OpDelete, 10_000, fake.Fault{Err: provider.ErrUnauthorized})
		s.size(web, 1)
		pass(time.Second)
		told := s.reported(problems.ReasonDeleteRefused)
		if len(told) != 1 || told[0].Instance == "" || told[0].Group != web || !strings.Contains(told[0].Message, "unauthorized") ||
			s.told() != 1 {
			t.Fatalf("told at once: %s", s.dump())
		}
		pass(time.Hour)
		if n := s.deletes(); n < 18 || n > 26 { // 0.5 s, 1 s, 2 s … 4 min 16 s, then every five minutes
			t.Errorf("%d deletes in an hour", n)
		}
		// The next leader finds it out again.
		_ = s.stop()
		s.lead()
		pass(time.Minute)
		if n := len(s.lasting(problems.ReasonDeleteRefused)); n != 1 {
			t.Errorf("%d last, want 1: %s", n, s.dump())
		}
		s.world.Mend()
		pass(6 * time.Minute)
		s.expectRunning(web, 1)
		if n := len(s.term.lasting()); n != 0 {
			t.Errorf("%d last although the machine is gone", n)
		}
	})
}
