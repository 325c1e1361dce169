package reconcile_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// large skips a test under the race detector, where it would take minutes. Other tests do the
// same on a smaller scale.
func large(t *testing.T) {
	t.Helper()
	if underRace {
		t.Skip("SKIPPED under the race detector: make test-race runs it without")
	}
}

// unansweredProvider fails status calls: the next large one, or all until a given time.
type unansweredProvider struct {
	*blindProvider
	large atomic.Bool
	until atomic.Int64 // in nanoseconds
	calls atomic.Int64 // that were refused
}

// unanswered makes all servers use one provider whose status calls can be made to fail.
func (s *shard) unanswered(consistent bool) *unansweredProvider {
	p := &unansweredProvider{blindProvider: s.blinded(consistent)}
	s.adjust = func(c *reconcile.Config) { c.Provider = p }
	return p
}

func (p *unansweredProvider) silence(d time.Duration) { p.until.Store(time.Now().Add(d).UnixNano()) }

func (p *unansweredProvider) Get(ctx context.Context, refs []provider.Ref) []provider.Answer {
	if time.Now().UnixNano() < p.until.Load() || len(refs) > 10 && p.large.CompareAndSwap(true, false) {
		p.calls.Add(1)
		return slices.Repeat([]provider.Answer{{Err: fake.ErrLost}}, len(refs))
	}
	return p.blindProvider.Get(ctx, refs)
}

// A large shard is held at a takeover with a misconfigured provider, although one of the status
// calls fails and some machines are being deleted.
func TestLargeShardIsHeldInAnotherWorld(t *testing.T) {
	large(t)
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		const size, deleting = 1000, 3
		p := s.unanswered(true)
		s.size(web, size)
		s.lead()
		pass(30 * time.Second)
		ids := s.expectRunning(web, size)
		_ = s.stop()
		for _, id := range ids[:deleting] {
			s.beginDelete(id)
		}
		p.setBlind(true)
		p.large.Store(true)
		s.lead()
		pass(time.Minute)
		if n := s.creates() - size; n > deleting || s.term.held().Reason != problems.ReasonAbsent {
			t.Errorf("%d machines given up; held %+v", n, s.term.held())
		}
		if n := len(s.running(web)); n < size-deleting {
			t.Errorf("%d of %d are left", n, size-deleting)
		}
		if p.large.Load() {
			t.Error("no large call: this shows nothing")
		}
	})
}

// beginDelete moves an instance to deleting, like a server that crashes right after that.
func (s *shard) beginDelete(id fleet.InstanceID) {
	_, err := s.bucket.lead().Update(s.t.Context(), id, func(i *fleet.Instance) error {
		i.Phase, i.Reason = fleet.Deleting, "scale-down"
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// A large shard that was lost while no server ran is replaced all at once.
func TestLargeLossDuringAFailoverIsReplacedAtOnce(t *testing.T) {
	large(t)
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.blinded(true)
		s.size(web, 1000)
		s.lead()
		pass(30 * time.Second)
		ids := s.expectRunning(web, 1000)
		_ = s.stop()
		for _, id := range ids {
			s.world.Vanish(id)
		}
		s.lead()
		pass(29 * time.Second)
		if n := s.creates(); n != 1000 {
			t.Errorf("%d replacements before the agents could speak", n-1000)
		}
		pass(11 * time.Second)
		if n := s.creates(); n != 2000 {
			t.Errorf("%d replacements, want 1000", n-1000)
		}
	})
}

// While agents of absent VMs may still connect, other instances are reconciled, and nothing is
// decided about the absent ones.
func TestOthersAreLookedAfterWhileAgentsMayComeBack(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.blinded(true)
		s.size(web, 10)
		s.size(db, 2)
		s.lead()
		pass(time.Minute)
		ids, others := s.expectRunning(web, 10), s.expectRunning(db, 2)
		_ = s.stop()
		for _, id := range ids[:3] {
			s.world.Vanish(id)
		}
		s.lead()
		pass(3 * time.Second)
		s.term.AgentReport(others[0], fleet.Report{At: time.Now(), Notice: &fleet.Notice{At: time.Now().Add(2 * time.Minute)}})
		s.world.Kill(others[1])
		pass(100 * time.Millisecond)
		if n := s.creates() - 12; n != 2 {
			t.Errorf("%d replacements of a machine that is to go and one that stopped, want 2", n)
		}
		s.size(web, 11)
		pass(20 * time.Second)
		if n := s.creates() - 14; n != 1 || len(s.records(web, fleet.Deleting, fleet.Deleted)) != 0 {
			t.Errorf("%d creates, want 1 for the greater size: %s", n, s.dump())
		}
		for _, line := range s.logged("replacement started") {
			if slices.Contains(ids[:3], fleet.InstanceID(line["replaces"].(string))) {
				t.Errorf("a create for another reason stands in for an absent machine: %v", line)
			}
		}
		pass(8 * time.Second)
		if n := s.creates() - 15; n != 3 {
			t.Errorf("%d replacements when all were silent, want 3", n)
		}
		pass(10 * time.Second)
		s.expectRunning(web, 11)
		s.expectRunning(db, 2)
	})
}
