package reconcile_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/fair"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// mutations are the calls that share a rate limit.
var mutations = []fake.Op{fake.OpCreate, fake.OpDelete}

// refusals counts the calls that were throttled.
func (s *shard) refusals(ops ...fake.Op) (n int) {
	for _, c := range s.world.Calls(ops...) {
		if errors.Is(c.Err, provider.ErrThrottled) {
			n++
		}
	}
	return n
}

// TestThrottledCreates: a provider that accepts two creates a second gets nearly two, however many
// are wanted, and each instance keeps its id.
func TestThrottledCreates(t *testing.T) {
	const size, perSecond, burst = 200, 2, 1
	for name, rate := range map[string]fair.Rate{
		"unlimited": {Concurrency: 16}, "limited": {PerSecond: 10, Burst: 20, Concurrency: 16},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{
				CreateLatency: fake.Fixed(50 * time.Millisecond), Throttles: []fake.Throttle{{Ops: mutations, PerSecond: perSecond, Burst: burst}},
			}, func(t *testing.T, s *shard) {
				s.bucket.latency = time.Millisecond
				s.adjust = func(c *reconcile.Config) { c.CreateRate = rate }
				s.lead()
				pass(time.Second)
				s.size(web, size)
				began := time.Now()
				for len(s.world.VMs()) < size && time.Since(began) < time.Hour {
					pass(100 * time.Millisecond)
				}
				ideal := float64(size-burst) / perSecond
				took, refusals := time.Since(began).Seconds()/ideal, s.refusals(fake.OpCreate)
				t.Logf("%.2f of the ideal time, %d refusals", took, refusals)
				if took > 1.15 || refusals > 30 {
					t.Errorf("took %.2f of the ideal time with %d refusals, want 1.15 and 30", took, refusals)
				}
				pass(10 * time.Second)
				s.expectRunning(web, size)
				if n := len(s.bucket.all()); n != size {
					t.Errorf("%d records, want %d", n, size)
				}
				if n := len(s.reported(problems.ReasonThrottled)); n != 1 {
					t.Errorf("told %d times of the throttling, want once: %s", n, s.dump())
				}
				if n := s.told(); n != 1 {
					t.Errorf("%d problems, want none but the throttling", n)
				}
			})
		})
	}
}

// TestThrottledForLong: an instance whose create is throttled keeps its id while it is needed, has no
// registration timeout, and is given up at its next turn when it is not needed.
func TestThrottledForLong(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.wanted.settings.CreateTimeout = 20 * time.Minute
		s.world.FailNext(fake.OpCreate, 10_000, fake.Fault{Err: provider.ErrThrottled})
		s.size(web, 3)
		s.lead()
		pass(time.Millisecond) // so that a create of the group's own begins first
		asked := s.demand(web)
		pass(12 * time.Minute)
		ids := s.records(web, fleet.Pending) // those that were begun before the first answer, and one on demand
		managed := len(ids) - 1
		if managed < 1 || managed > 3 || !slices.Contains(ids, asked) || len(s.bucket.all()) != len(ids) {
			t.Fatalf("want two to four that wait, one of them %s, and no tombstone: %s", asked, s.dump())
		}
		if n := s.creates(); n > 200 {
			t.Errorf("%d creates in twelve minutes, want one in five seconds", n)
		}
		if !slices.ContainsFunc(ids, func(id fleet.InstanceID) bool { return strings.Contains(s.term.Health(id).LastError, "throttled") }) {
			t.Errorf("no status says what is waited for")
		}
		s.size(web, 1)
		pass(5 * time.Minute) // each has its turn at the lowered rate
		if n := len(s.records(web, fleet.Deleted)); n != managed-1 || s.deletes() != 0 {
			t.Errorf("want all but one that are given up, without a delete: %s", s.dump())
		}
		s.world.Mend()
		pass(time.Minute)
		s.expectManaged(web, 1)
		for _, id := range s.running(web) {
			if !slices.Contains(ids, id) {
				t.Errorf("%s is another id", id)
			}
		}
		if s.phase(asked) != fleet.Running || len(s.bucket.all()) != len(ids) {
			t.Errorf("want the ids of before: %s", s.dump())
		}
		if n := s.told(); n != 1 {
			t.Errorf("%d problems, want one: %s", n, s.dump())
		}
	})
}

// TestThrottledCreateIsTakenOver: the next leader resumes a deferred create from its record, and a
// crash in between leaves at most one machine.
func TestThrottledCreateIsTakenOver(t *testing.T) {
	for _, after := range []time.Duration{time.Second, time.Minute} {
		bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
			s.world.FailNext(fake.OpCreate, 10_000, fake.Fault{Err: provider.ErrThrottled})
			s.size(web, 1)
			s.lead()
			pass(after)
			id := s.records(web, fleet.Pending)[0]
			_ = s.stop()
			s.world.Mend()
			s.lead()
			pass(time.Minute)
			if got := s.expectRunning(web, 1); got[0] != id || len(s.bucket.all()) != 1 {
				t.Errorf("after %s: %v runs, want %s alone: %s", after, got, id, s.dump())
			}
		})
	}
}

// TestThrottledDeletes: many deletions are batched in few calls, and throttling is no failure of
// them.
func TestThrottledDeletes(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 250)
		s.lead()
		pass(time.Minute)
		s.expectRunning(web, 250)
		s.world.Throttle(fake.Throttle{Ops: mutations, PerSecond: 1})
		s.size(web, 0)
		pass(20 * time.Second)
		if n := len(s.world.VMs()); n != 0 {
			t.Errorf("%d machines are left: %s", n, s.dump())
		}
		if n := s.deletes() - s.refusals(fake.OpDelete); n > 10 {
			t.Errorf("%d calls for 250 deletions", n)
		}
		if got := s.term.lasting(); len(got) != 1 || got[0].Reason != problems.ReasonThrottled || s.told() != 1 {
			t.Errorf("lasting: %v, want the throttling alone: %s", got, s.dump())
		}
		pass(time.Minute)
		if got := s.term.lasting(); len(got) != 0 {
			t.Errorf("it lasts: %v", got)
		}
		s.world.FailNext(fake.OpCreate, 1, fake.Fault{Err: provider.ErrThrottled})
		s.size(web, 1)
		pass(time.Minute)
		if n := len(s.reported(problems.ReasonThrottled)); n != 2 {
			t.Errorf("told %d times, want each of two beginnings", n)
		}
	})
}

// told counts the reported problems.
func (s *shard) told() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.problems)
}

// TestThrottledDeletesHoldUpNoCreates: throttled deletes are retried in turn with creates, not always
// before them.
func TestThrottledDeletesHoldUpNoCreates(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(50 * time.Millisecond)}, func(t *testing.T, s *shard) {
		s.size(web, 5)
		s.lead()
		pass(time.Minute)
		s.expectRunning(web, 5)
		s.world.Throttle(fake.Throttle{Ops: []fake.Op{fake.OpDelete}, PerSecond: 0.0001, Burst: 1})
		s.size(web, 0)
		pass(time.Minute)
		s.size(db, 5)
		pass(5 * time.Minute)
		s.expectRunning(db, 5)
		if n := len(s.records(web, fleet.Deleting)); n != 4 {
			t.Errorf("%d wait to be deleted, want 4", n)
		}
	})
}

// TestThrottledCreatesHoldUpNoDeletes: however long none is taken.
func TestThrottledCreatesHoldUpNoDeletes(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(50 * time.Millisecond)}, func(t *testing.T, s *shard) {
		s.size(web, 5)
		s.lead()
		pass(time.Minute)
		s.expectRunning(web, 5)
		s.world.Throttle(fake.Throttle{Ops: []fake.Op{fake.OpCreate}, PerSecond: 0.0001, Burst: 1})
		s.size(db, 50)
		pass(5 * time.Minute)
		s.size(web, 0)
		pass(2 * time.Minute)
		if n := len(s.records(web, fleet.Deleted)); n != 5 {
			t.Errorf("%d of 5 deleted in two minutes: %s", n, s.dump())
		}
	})
}

// TestThrottledForLongAfterATakeover: a create of an earlier leader is retried until it is accepted,
// and is no failure of its group.
func TestThrottledForLongAfterATakeover(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.world.FailNext(fake.OpCreate, 10_000, fake.Fault{Err: provider.ErrThrottled})
		s.size(web, 3)
		s.lead()
		pass(5 * time.Second)
		asked := s.records(web, fleet.Pending) // called so far; the others are throttled
		_ = s.stop()
		s.lead()
		pass(20 * time.Minute)
		pending := s.records(web, fleet.Pending)
		if len(asked) == 0 || !containsAll(pending, asked) || len(s.bucket.all()) != len(pending) || len(pending) > 3 {
			t.Errorf("want the records %v, at most 3 of them in all and all pending: %s", asked, s.dump())
		}
		if c, ok := s.term.CreatesFailing(web); ok {
			t.Errorf("said to fail: %+v", c)
		}
		s.world.Mend()
		pass(time.Minute)
		if got := s.expectRunning(web, 3); !containsAll(got, pending) || len(s.bucket.all()) != 3 {
			t.Errorf("%v run, want %v among them, and no other records: %s", got, pending, s.dump())
		}
	})
}

func containsAll(all, some []fleet.InstanceID) bool {
	return !slices.ContainsFunc(some, func(id fleet.InstanceID) bool { return !slices.Contains(all, id) })
}
