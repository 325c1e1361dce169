package reconcile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// full makes every create fail because the subnets are full, until room is made.
func (s *shard) full() { s.world.SetCapacity(map[string]int{"subnet-a": 0, "subnet-b": 0}) }

func (s *shard) room() { s.world.SetCapacity(map[string]int{"subnet-a": 9, "subnet-b": 9}) }

// TestOnDemandWaitsForRoom: the instance is created when there is room, even after the
// registration timeout and by another leader.
func TestOnDemandWaitsForRoom(t *testing.T) {
	for name, handover := range map[string]bool{"one leader": false, "two leaders": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				s.adjust = plain // so that only creates show that subnets are full
				s.size(web, 0)
				s.full()
				s.lead()
				id := s.demand(web)
				pass(3 * time.Minute)
				r, _ := s.bucket.get(id)
				if r.Phase != fleet.Pending || r.Provider.CreateAttemptedAt != nil || r.Provider.Subnet != "" {
					t.Fatalf("want it to wait, and its record to say that nothing is under way: %+v %s", r, s.dump())
				}
				h := s.term.Health(id)
				if !strings.Contains(h.LastError, "subnet full") || h.LastErrorAt.IsZero() || time.Since(h.LastErrorAt) > 3*time.Minute {
					t.Errorf("the last error is %q of %v", h.LastError, h.LastErrorAt)
				}
				if handover {
					_ = s.stop()
					s.lead()
				}
				pass(4 * time.Minute) // longer than it may take to register
				if s.phase(id) != fleet.Pending {
					t.Fatalf("want it to wait: %s", s.dump())
				}
				s.room()
				pass(2 * time.Minute)
				s.expectMade(id)
				if h := s.term.Health(id); h.LastError != "" || !h.LastErrorAt.IsZero() {
					t.Errorf("the last error is %q of %v, although it was made", h.LastError, h.LastErrorAt)
				}
			})
		})
	}
}

func (s *shard) expectMade(id fleet.InstanceID) {
	s.t.Helper()
	if s.phase(id) != fleet.Running || len(s.vmsOf(id)) != 1 {
		s.t.Errorf("want it made: %s", s.dump())
	}
}

// TestOnDemandWithoutRoomEnds: after create_timeout the instance has failed, and its record says
// why.
func TestOnDemandWithoutRoomEnds(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 0)
		s.full()
		s.lead()
		pass(time.Second)
		id := s.demand(web)
		pass(10*time.Minute - time.Second)
		if s.phase(id) != fleet.Pending {
			t.Fatalf("want it to wait: %s", s.dump())
		}
		pass(2 * time.Second)
		r, _ := s.bucket.get(id)
		if r.Phase != fleet.Deleted || r.Reason != plan.ReasonCreateTimeout || !r.Failed() {
			t.Fatalf("want it failed: %+v %s", r, s.dump())
		}
		for _, part := range []string{"within 10m0s", "server.on_demand.create_timeout", "subnet full", "subnet-a"} {
			if !strings.Contains(r.Failure, part) {
				t.Errorf("%q does not say %q", r.Failure, part)
			}
		}
		_ = s.stop()
		s.lead()
		pass(time.Second)
		if h := s.term.Health(id); h.LastError != r.Failure || !h.LastErrorAt.Equal(*r.DeletedAt) {
			t.Errorf("after a handover the last error is %q of %v", h.LastError, h.LastErrorAt)
		}
		pass(time.Hour)
		if s.phase(id) != "" || len(s.world.VMs()) != 0 {
			t.Errorf("something is left: %s", s.dump())
		}
	})
}

// TestOnDemandThatMayBeThereEnds: the create got no answer before the timeout, so the machine may
// exist; the instance has failed once the provider does not find it.
func TestOnDemandThatMayBeThereEnds(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 0)
		s.lead()
		pass(time.Second)
		s.world.FailNext(fake.OpCreate, 1000, fake.Fault{Err: fake.ErrLost})
		id := s.demand(web)
		pass(10*time.Minute - time.Second)
		if s.phase(id) != fleet.Pending {
			t.Fatalf("want it to be asked for: %s", s.dump())
		}
		pass(2 * time.Minute)
		if r, _ := s.bucket.get(id); r.Phase != fleet.Deleted || r.Reason != plan.ReasonCreateTimeout || !r.Failed() {
			t.Errorf("want it failed: %+v %s", r, s.dump())
		}
		if len(s.world.Calls(fake.OpDelete)) == 0 {
			t.Error("no call made sure that it is not there")
		}
	})
}

// TestOnDemandThatWasThereHasNotFailed: the create got no answer before the timeout, and then the
// provider shows a machine, which may have been used.
func TestOnDemandThatWasThereHasNotFailed(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.adjust = withoutWatch
		s.agents.boot = time.Hour
		s.size(web, 0)
		s.lead()
		pass(time.Second)
		s.world.FailNext(fake.OpCreate, 1000, fake.Fault{Err: fake.ErrLost, Applied: true})
		for _, op := range []fake.Op{fake.OpGet, fake.OpList, fake.OpDelete} {
			s.world.FailNext(op, 1000, fake.Fault{Err: fake.ErrLost})
		}
		id := s.demand(web)
		pass(10*time.Minute + time.Second)
		if r, _ := s.bucket.get(id); r.Phase != fleet.Deleting || !r.Failed() {
			t.Fatalf("want it to be deleted, as it was never seen: %+v %s", r, s.dump())
		}
		s.world.Mend()
		pass(time.Minute) // no create is waited for any more
		if r, _ := s.bucket.get(id); r.Phase != fleet.Deleted || r.Failed() {
			t.Errorf("want it gone, and not failed: %+v %s", r, s.dump())
		}
	})
}

// TestOnDemandIsRemovedWhileItWaits: that is no failure.
func TestOnDemandIsRemovedWhileItWaits(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 0)
		s.full()
		s.lead()
		id := s.demand(web)
		pass(time.Minute)
		s.askOut(id)
		pass(time.Millisecond) // no machine to wait for
		if r, _ := s.bucket.get(id); r.Phase != fleet.Deleted || r.Reason != plan.ReasonDeleteAsked || r.Failed() {
			t.Errorf("want it removed: %+v", r)
		}
	})
}

// TestTimeToRegisterCountsFromTheLastCreate: for managed and on-demand instances whose machine was
// made by a later create.
func TestTimeToRegisterCountsFromTheLastCreate(t *testing.T) {
	for name, demanded := range map[string]bool{"managed": false, "on-demand": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				s.agents.boot = 4 * time.Minute
				s.lead()
				pass(time.Second)
				s.world.FailNext(fake.OpCreate, 8, fake.Fault{Err: fake.ErrLost})
				began := time.Now()
				if demanded {
					s.size(web, 0)
					s.demand(web)
				} else {
					s.size(web, 1)
				}
				pass(time.Second)
				id := s.records(web, fleet.Pending)[0]
				pass(15 * time.Minute)
				calls := s.world.CreateCalls(id)
				if n := len(calls); n != 9 || calls[n-1].Start.Sub(began) < time.Minute {
					t.Fatalf("%d creates: %s", len(calls), s.dump())
				}
				s.expectMade(id)
			})
		})
	}
}

// TestRefusalsDontPutOffTheTimeToRegister: the timeout counts from the one create with an unknown
// outcome.
func TestRefusalsDontPutOffTheTimeToRegister(t *testing.T) {
	for name, demanded := range map[string]bool{"managed": false, "on-demand": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				s.size(web, 0)
				s.lead()
				pass(time.Second)
				s.world.FailNext(fake.OpCreate, 1, fake.Fault{Err: fake.ErrLost})
				s.world.FailNext(fake.OpCreate, 1000, fake.Fault{Err: provider.ErrQuota})
				if demanded {
					s.demand(web)
				} else {
					s.size(web, 1)
				}
				pass(5*time.Minute - time.Second)
				pending := s.records(web, fleet.Pending)
				if len(pending) != 1 || len(s.world.CreateCalls(pending[0])) < 5 {
					t.Fatalf("want it asked for again and again: %s", s.dump())
				}
				pass(2 * time.Second)
				if r, _ := s.bucket.get(pending[0]); r.Reason != plan.ReasonRegistrationTimeout || r.Failed() != demanded {
					t.Errorf("want it given up: %+v", r)
				}
				if !demanded {
					return
				}
				pass(2 * time.Minute)
				r, _ := s.bucket.get(pending[0])
				if r.Phase != fleet.Deleted {
					t.Errorf("want it gone: %+v", r)
				}
				for _, part := range []string{"within 5m0s", "registration_timeout", "capacity used up"} {
					if !strings.Contains(r.Failure, part) {
						t.Errorf("%q does not say %q", r.Failure, part)
					}
				}
			})
		})
	}
}

// TestInstanceOfNoCreateIsNotGivenUp: a managed instance whose create was not called, or was
// definitely refused, waits for as long as it takes. The registration timeout begins with the
// create that made its machine.
func TestInstanceOfNoCreateIsNotGivenUp(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.agents.muteAll = true
		s.size(web, 1)
		r := s.demanded(web)
		r.OnDemand, r.Overrides, r.Hashes, r.Epoch, r.Rev = false, nil, fleet.Hashes{Infra: "i1"}, 1, 1
		s.bucket.place(r)
		s.full()
		s.lead()
		pass(time.Hour)
		if got, _ := s.bucket.get(r.ID); got.Phase != fleet.Pending || got.Provider.CreateAttemptedAt != nil || len(s.bucket.all()) != 1 {
			t.Fatalf("want it to wait: %+v %s", got, s.dump())
		}
		s.room()
		pass(6 * time.Minute)
		made := s.world.CreateCalls(r.ID)
		if got, _ := s.bucket.get(r.ID); got.Phase != fleet.Pending || got.Provider.ID == "" {
			t.Fatalf("want it made, and time to register: %s", s.dump())
		}
		pass(time.Until(made[len(made)-1].Start.Add(5*time.Minute + time.Second)))
		if got, _ := s.bucket.get(r.ID); got.Reason != plan.ReasonRegistrationTimeout {
			t.Errorf("want it given up: %+v", got)
		}
	})
}

// TestCrashAroundARefusal: whenever the server dies while the create of an on-demand instance is
// refused, the next one neither gives it up too soon nor makes two machines, and a refusal before
// the crash counts only if the record says so.
func TestCrashAroundARefusal(t *testing.T) {
	for _, kind := range []string{"before update-pending", "after update-pending", "at create"} {
		for n, crashed := 0, true; crashed && n < 8; n++ {
			t.Run(fmt.Sprintf("%s/%d", kind, n), func(t *testing.T) {
				bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
					c := &crasher{s: s, kind: kind, left: n}
					s.world = fake.New(fake.Config{Seed: uint64(n), CreateLatency: fake.Fixed(50 * time.Millisecond), OnCall: c.called})
					s.bucket.latency = 5 * time.Millisecond
					s.adjust = func(cfg *reconcile.Config) {
						plain(cfg)
						cfg.CreateBackoff = time.Minute // retried before it is given up
					}
					s.full()
					s.size(web, 0)
					s.lead()
					pass(time.Second)
					c.arm()
					id := s.demand(web)
					pass(20 * time.Second)
					crashed = c.crashed()
					c.disarm()
					if crashed {
						_ = s.stop()
						s.lead()
					}
					pass(3 * time.Minute)
					if r, _ := s.bucket.get(id); r.Phase != fleet.Pending {
						t.Fatalf("want it to wait: %+v %s", r, s.dump())
					}
					s.room()
					pass(6 * time.Minute)
					s.expectMade(id)
				})
			})
		}
	}
}

// TestLastError: also of a step of the removal; cleared when the step succeeds, and short and
// valid UTF-8 whatever the provider returns.
func TestLastError(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 1)
		s.lead()
		pass(time.Minute)
		id := s.expectRunning(web, 1)[0]
		if h := s.term.Health(id); h.LastError != "" || !h.LastErrorAt.IsZero() {
			t.Errorf("nothing has failed, but %q at %v", h.LastError, h.LastErrorAt)
		}
		long := errors.New("the provider says \xff" + strings.Repeat("é", 2000))
		s.world.FailNext(fake.OpDelete, 2, fake.Fault{Err: long})
		s.size(web, 0)
		pass(100 * time.Millisecond)
		h := s.term.Health(id)
		if !strings.Contains(h.LastError, "delete instance "+string(id)) || !strings.Contains(h.LastError, "the provider says é") {
			t.Errorf("the last error is %q", h.LastError)
		}
		if len(h.LastError) > fleet.MaxFailure || len(h.LastError) < fleet.MaxFailure-3 || !utf8.ValidString(h.LastError) {
			t.Errorf("%d bytes, valid: %t", len(h.LastError), utf8.ValidString(h.LastError))
		}
		pass(time.Minute)
		if h := s.term.Health(id); s.phase(id) != fleet.Deleted || h.LastError != "" {
			t.Errorf("the last error is %q: %s", h.LastError, s.dump())
		}
	})
}

// TestLastErrorOfARefusedCreate: the tombstone has the provider's error.
func TestLastErrorOfARefusedCreate(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.lead()
		s.world.FailNext(fake.OpCreate, 1, fake.Fault{Err: fmt.Errorf("no such flavour: %w", provider.ErrInvalid)})
		s.size(web, 1)
		pass(10 * time.Second)
		gone := s.records(web, fleet.Deleted)
		if len(gone) != 1 {
			t.Fatal(s.dump())
		}
		if h := s.term.Health(gone[0]); !strings.Contains(h.LastError, "no such flavour") || h.LastErrorAt.IsZero() {
			t.Errorf("the last error is %q at %v", h.LastError, h.LastErrorAt)
		}
	})
}

// TestRegistrationThatIsFasterThanItsTimeout: an agent registers during the write that ends its
// instance because of the registration timeout.
func TestRegistrationThatIsFasterThanItsTimeout(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.bucket.latency = 2 * time.Second
		s.agents.boot = 5*time.Minute - time.Second // from the end of the first write; the next one ends after the timeout
		s.size(web, 1)
		s.lead()
		pass(5*time.Minute + 10*time.Second)
		s.expectRunning(web, 1)
		if s.creates() != 1 || s.deletes() != 0 {
			t.Errorf("%d creates and %d deletes: %s", s.creates(), s.deletes(), s.dump())
		}
	})
}
