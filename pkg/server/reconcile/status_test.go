package reconcile_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/problems"
)

// slowList is a provider with quick calls, except List.
func slowList() fake.Config {
	return fake.Config{
		CreateLatency: fake.Fixed(50 * time.Millisecond), GetLatency: fake.Fixed(50 * time.Millisecond),
		DeleteLatency: fake.Fixed(50 * time.Millisecond), ListLatency: fake.Fixed(6 * time.Second),
		Shutdown: fake.Fixed(20 * time.Second),
	}
}

// TestManyDeathsBesideASlowList: status never waits for a list.
func TestManyDeathsBesideASlowList(t *testing.T) {
	bubble(t, slowList(), func(t *testing.T, s *shard) {
		s.adjust = withoutWatch
		s.size(web, 40)
		s.lead()
		pass(time.Minute)
		ids := s.expectRunning(web, 40)
		for _, id := range ids[:20] {
			s.world.Kill(id)
		}
		pass(time.Second)
		if n := len(s.logged("replacement started")); n != 20 {
			t.Errorf("%d replacements begun a second after 20 deaths", n)
		}
		pass(time.Minute)
		s.expectRunning(web, 40)
	})
}

// TestManyDeletionsBesideASlowList end soon, and in few calls.
func TestManyDeletionsBesideASlowList(t *testing.T) {
	bubble(t, slowList(), func(t *testing.T, s *shard) {
		s.adjust = withoutWatch
		s.size(web, 300)
		s.lead()
		pass(3 * time.Minute)
		s.expectRunning(web, 300)
		s.world.ForgetCalls()
		s.size(web, 0)
		pass(45 * time.Second)
		if n := len(s.records(web, fleet.Deleted)); n != 300 {
			t.Errorf("%d tombstones after 45 s, want 300", n)
		}
		deletes, gets := s.world.Calls(fake.OpDelete), s.world.Calls(fake.OpGet)
		if len(deletes) > 40 || len(gets) > 100 {
			t.Errorf("%d deletes and %d status calls for the end of 300 VMs", len(deletes), len(gets))
		}
		named := map[fleet.InstanceID]int{}
		for _, c := range deletes {
			for _, ref := range c.Refs {
				named[ref.ID]++
			}
		}
		if len(named) != 300 {
			t.Errorf("%d VMs were deleted", len(named))
		}
	})
}

// TestSlowStatusCallHoldsUpNoOther: the first of five questions hangs.
func TestSlowStatusCallHoldsUpNoOther(t *testing.T) {
	bubble(t, fake.Config{GetLatency: fake.Fixed(10 * time.Millisecond)}, func(t *testing.T, s *shard) {
		s.adjust = withoutWatch
		s.size(web, 5)
		s.lead()
		pass(time.Minute)
		ids := s.expectRunning(web, 5)
		s.world.FailNext(fake.OpGet, 1, fake.Fault{Hang: true})
		for _, id := range ids {
			s.world.Kill(id)
		}
		pass(100 * time.Millisecond)
		if n := len(s.logged("replacement started")); n != 4 {
			t.Errorf("%d replacements begun beside a status call that hangs, want 4", n)
		}
		pass(5500 * time.Millisecond) // that call is given up, and repeated
		if n := len(s.logged("replacement started")); n != 5 {
			t.Errorf("%d replacements, want 5", n)
		}
	})
}

// TestStatusBatchThatFails: it is retried, and reported once.
func TestStatusBatchThatFails(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.adjust = withoutWatch
		s.size(web, 30)
		s.lead()
		pass(time.Minute)
		ids := s.expectRunning(web, 30)
		s.world.Outage(errors.New("cloud is away"))
		for _, id := range ids {
			s.world.Kill(id)
		}
		pass(10 * time.Second)
		if n := len(s.reported(problems.ReasonProvider)); n != 1 {
			t.Errorf("%d problems, want 1: %s", n, s.dump())
		}
		s.world.Outage(nil)
		pass(10 * time.Second)
		if n := len(s.logged("replacement started")); n != 30 {
			t.Errorf("%d replacements, want 30", n)
		}
	})
}

// TestQuestionThatComesUpAnew: a poll that is requested during another one is sent again, because
// the answer may be older than its cause.
func TestQuestionThatComesUpAnew(t *testing.T) {
	bubble(t, fake.Config{GetLatency: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
		s.adjust = withoutWatch
		s.size(web, 1)
		s.lead()
		pass(time.Minute)
		id := s.expectRunning(web, 1)[0]
		s.world.ForgetCalls()
		for range 5 { // an agent that comes and goes
			s.agents.drop(s.term, id)
			s.agents.connect(s.term, id)
			pass(100 * time.Millisecond)
		}
		pass(5 * time.Second)
		if n := len(s.world.Calls(fake.OpGet)); n != 2 {
			t.Errorf("%d status calls, want the one that was open and one more", n)
		}
	})
}

// TestManyBrokenStreams: they cost few calls, and few concurrent ones.
func TestManyBrokenStreams(t *testing.T) {
	bubble(t, fake.Config{GetLatency: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
		s.adjust = withoutWatch
		s.size(web, 300)
		s.lead()
		pass(time.Minute)
		ids := s.expectRunning(web, 300)
		s.world.ForgetCalls()
		for _, id := range ids {
			s.agents.drop(s.term, id)
		}
		pass(1500 * time.Millisecond)
		calls := s.world.Calls(fake.OpGet)
		asked := map[fleet.InstanceID]bool{}
		for _, c := range calls {
			under := 0
			for _, o := range calls {
				if !o.Start.After(c.Start) && (o.End.IsZero() || o.End.After(c.Start)) {
					under++
				}
			}
			if under > 10 {
				t.Fatalf("%d status calls under way at one time", under)
			}
			for _, ref := range c.Refs {
				asked[ref.ID] = true
			}
		}
		if len(asked) != 300 || len(calls) > 23 { // ten, three for the waiting polls, and ten polls again
			t.Errorf("%d calls about %d machines, want 300 in at most 23", len(calls), len(asked))
		}
		for _, id := range ids {
			s.agents.connect(s.term, id)
		}
		pass(time.Minute)
		s.expectRunning(web, 300)
	})
}
