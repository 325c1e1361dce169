package reconcile_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
)

// demanded returns the record of an on-demand instance as requested, without a subnet.
func (s *shard) demanded(key fleet.GroupKey) fleet.Instance {
	now := time.Now().UTC()
	id, err := s.newID("knd", now)
	if err != nil {
		s.t.Fatal(err)
	}
	return fleet.Instance{
		ID: id, Tenant: key.Tenant, Group: key.Name, OnDemand: true, Phase: fleet.Pending, CreatedAt: now,
		Overrides: &fleet.Overrides{InstanceType: "huge"}, Provider: fleet.ProviderRef{InstanceType: "huge"},
		Hashes: fleet.Hashes{Infra: "its own"},
	}
}

// demand makes the leader record an on-demand instance.
func (s *shard) demand(key fleet.GroupKey) fleet.InstanceID {
	s.t.Helper()
	r, err := s.term.ledger.Create(context.Background(), s.demanded(key))
	if err != nil {
		s.t.Fatal(err)
	}
	s.term.Enqueue(key)
	return r.ID
}

// change edits a record through the leader, as a call of the API does.
func (s *shard) change(id fleet.InstanceID, change func(*fleet.Instance)) error {
	err := s.term.Update(context.Background(), id, func(i *fleet.Instance) error { change(i); return nil })
	if r, ok := s.term.ledger.Get(id); ok {
		s.term.Enqueue(r.GroupKey())
	}
	return err
}

// askOut requests the removal of one instance.
func (s *shard) askOut(id fleet.InstanceID) {
	s.t.Helper()
	if err := s.change(id, func(i *fleet.Instance) { i.RemovalAskedAt = new(time.Now()) }); err != nil {
		s.t.Fatal(err)
	}
}

// phase returns the phase of a stored record; empty if there is none.
func (s *shard) phase(id fleet.InstanceID) fleet.Phase {
	r, _ := s.bucket.get(id)
	return r.Phase
}

// managed returns the running managed instances of the group.
func (s *shard) managed(key fleet.GroupKey) (ids []fleet.InstanceID) {
	for _, id := range s.running(key) {
		if r, _ := s.bucket.get(id); !r.OnDemand {
			ids = append(ids, id)
		}
	}
	return ids
}

func (s *shard) expectManaged(key fleet.GroupKey, n int) []fleet.InstanceID {
	s.t.Helper()
	ids := s.managed(key)
	if len(ids) != n {
		s.t.Fatalf("%s: %d managed ones run, want %d: %s", key, len(ids), n, s.dump())
	}
	return ids
}

func TestOnDemandInstanceFillsNoPlace(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 2)
		s.lead()
		pass(10 * time.Second)
		id := s.demand(web)
		pass(10 * time.Second)
		if s.phase(id) != fleet.Running || !s.isAlive(id) || len(s.world.CreateCalls(id)) != 1 {
			t.Fatalf("%d creates, want one, and it running: %s", len(s.world.CreateCalls(id)), s.dump())
		}
		r, _ := s.bucket.get(id)
		if r.Provider.ID == "" || r.Provider.Subnet != "subnet-a" || r.Provider.CreateAttemptedAt == nil {
			t.Errorf("the record does not say what was made: %+v", r.Provider)
		}
		s.size(web, 0)
		pass(time.Minute)
		s.expectManaged(web, 0)
		s.size(web, 3)
		s.wanted.edit(web, func(g *fleet.Group) { g.Hashes.Infra = "i2" })
		pass(time.Hour)
		s.expectManaged(web, 3)
		if s.phase(id) != fleet.Running {
			t.Errorf("it went with the group's own: %s", s.dump())
		}
		before := s.creates()
		s.askOut(id)
		pass(10 * time.Second)
		if s.phase(id) != fleet.Deleted || s.creates() != before {
			t.Errorf("%d creates more; want it gone, and nothing in its place: %s", s.creates()-before, s.dump())
		}
	})
}

// TestOnDemandCreateThatFails: the caller waits for its id, so the create is retried with that,
// and the group's own creates are not delayed.
func TestOnDemandCreateThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		fault  fake.Fault
		plain  bool // the provider knows no subnets
		faults int
		want   fleet.Phase
		calls  int
	}{
		"for good":                   {fault: fake.Fault{Err: provider.ErrInvalid}, faults: 1, want: fleet.Deleted, calls: 1},
		"for good, without subnets":  {fault: fake.Fault{Err: provider.ErrInvalid}, plain: true, faults: 1, want: fleet.Deleted, calls: 1},
		"no right":                   {fault: fake.Fault{Err: provider.ErrUnauthorized}, faults: 1, want: fleet.Deleted, calls: 1},
		"one subnet is full":         {fault: fake.Fault{Err: provider.ErrSubnetFull}, faults: 1, want: fleet.Running, calls: 2},
		"all subnets are full":       {fault: fake.Fault{Err: provider.ErrSubnetFull}, faults: 2, want: fleet.Running, calls: 3},
		"the quota is used up":       {fault: fake.Fault{Err: provider.ErrQuota}, faults: 1, want: fleet.Running, calls: 2},
		"throttled":                  {fault: fake.Fault{Err: provider.ErrThrottled}, faults: 3, want: fleet.Running, calls: 4},
		"throttled, without subnets": {fault: fake.Fault{Err: provider.ErrThrottled}, plain: true, faults: 3, want: fleet.Running, calls: 4},
		"no answer":                  {fault: fake.Fault{Err: fake.ErrLost}, faults: 3, want: fleet.Running, calls: 4},
		"made, but no answer":        {fault: fake.Fault{Err: fake.ErrLost, Applied: true}, faults: 1, want: fleet.Running, calls: 2},
		"made, no answer, and no subnet": {
			fault: fake.Fault{Err: fake.ErrLost, Applied: true}, plain: true, faults: 1, want: fleet.Running, calls: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				s.agents.boot = 20 * time.Second
				if c.plain {
					s.wanted.edit(web, func(g *fleet.Group) { g.Subnets = nil })
				}
				s.size(web, 1)
				s.lead()
				pass(time.Minute)
				s.world.FailNext(fake.OpCreate, c.faults, c.fault)
				id := s.demand(web)
				pass(100 * time.Millisecond)
				if c.faults == 1 { // otherwise the group's own create would get the other faults
					s.size(web, 2)
					pass(100 * time.Millisecond)
					if n := len(s.records(web, fleet.Pending)); n == 0 || s.creates() < 3 {
						t.Errorf("the group's own create waits: %s", s.dump())
					}
				}
				pass(2 * time.Minute)
				s.size(web, 2)
				pass(time.Minute)
				if got := s.phase(id); got != c.want || len(s.world.CreateCalls(id)) != c.calls {
					t.Errorf("%s after %d creates, want %s after %d: %s", got, len(s.world.CreateCalls(id)), c.want, c.calls, s.dump())
				}
				r, _ := s.bucket.get(id)
				if c.want == fleet.Deleted && (r.Reason != plan.ReasonCreateFailed || !strings.Contains(r.Failure, c.fault.Err.Error())) {
					t.Errorf("gone because of %q: %q", r.Reason, r.Failure)
				}
				if r.Failed() != (c.want == fleet.Deleted) {
					t.Errorf("failed: %t", r.Failed())
				}
				s.expectManaged(web, 2)
				if n := len(s.vmsOf(id)); n > 1 || (n == 1) != (c.want == fleet.Running) {
					t.Errorf("%d machines of it", n)
				}
			})
		})
	}
}

// TestOnDemandAnswerLostThenRefused: a refusal says nothing about an earlier create, whose machine
// may exist. The instance is not given up before its timeout.
func TestOnDemandAnswerLostThenRefused(t *testing.T) {
	for _, plain := range []bool{false, true} {
		bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
			s.agents.muteAll = true
			s.wanted.edit(web, func(g *fleet.Group) {
				if plain {
					g.Subnets = nil
				}
			})
			s.lead()
			s.world.FailNext(fake.OpCreate, 1, fake.Fault{Err: fake.ErrLost, Applied: true})
			s.world.FailNext(fake.OpCreate, 2, fake.Fault{Err: provider.ErrInvalid})
			id := s.demand(web)
			pass(4 * time.Minute)
			if r, _ := s.bucket.get(id); r.Phase != fleet.Pending || r.Provider.ID == "" {
				t.Errorf("want its machine found: %s", s.dump())
			}
			pass(2 * time.Minute)
			if r, _ := s.bucket.get(id); r.Phase != fleet.Deleted || r.Reason != plan.ReasonRegistrationTimeout || len(s.alive()) != 0 {
				t.Errorf("want it given up: %s", s.dump())
			}
		})
	}
}

// TestOnDemandRecordOutlivesItsLeader: a record that exists at takeover is resumed by the next
// leader, with its id; one that appears later was not acknowledged, and is resumed only if it
// has an idempotency key, since the key can name no other instance.
func TestOnDemandRecordOutlivesItsLeader(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 1)
		s.lead()
		pass(10 * time.Second)
		r, err := s.term.ledger.Create(context.Background(), s.demanded(web)) // without Enqueue
		if err != nil {
			t.Fatal(err)
		}
		late := s.demanded(web)
		late.Epoch, late.Rev, late.Writer = 1, 1, "server-1"
		named := s.demanded(web)
		named.Epoch, named.Rev, named.Writer, named.RequestKey = 1, 1, "server-1", "k"
		_ = s.stop()
		s.lead()
		pass(5 * time.Second)
		s.bucket.place(late)
		s.bucket.place(named)
		pass(time.Minute)
		if s.phase(r.ID) != fleet.Running || len(s.world.CreateCalls(r.ID)) != 1 {
			t.Errorf("want it made: %s", s.dump())
		}
		if got, _ := s.bucket.get(late.ID); got.Phase != fleet.Deleted || got.Reason != plan.ReasonStray ||
			len(s.world.CreateCalls(late.ID)) != 0 {
			t.Errorf("want it never made: %s", s.dump())
		}
		if s.phase(named.ID) != fleet.Running || len(s.world.CreateCalls(named.ID)) != 1 {
			t.Errorf("want what a key names made: %s", s.dump())
		}
	})
}

// TestOnDemandOfALostGroup: no instance of a group that is gone is created, and existing ones are
// removed.
func TestOnDemandOfALostGroup(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.lead()
		pass(time.Second)
		none := s.demand(db) // not defined
		pass(10 * time.Second)
		if s.phase(none) != fleet.Deleted || len(s.world.CreateCalls(none)) != 0 {
			t.Errorf("want it refused: %s", s.dump())
		}
		s.size(web, 1)
		id := s.demand(web)
		pass(10 * time.Second)
		s.wanted.edit(web, func(g *fleet.Group) { g.Removed = true })
		s.term.Enqueue(web)
		pass(10 * time.Second)
		if s.phase(id) != fleet.Deleted || len(s.wanted.Keys()) != 0 {
			t.Errorf("want it gone, and the group forgotten: %s", s.dump())
		}
	})
}

// TestOnDemandThatCannotBeBuilt: the config may be corrected in time.
func TestOnDemandThatCannotBeBuilt(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.build = func(fleet.Instance) error { return errors.New("no such var") }
		s.size(web, 0)
		s.lead()
		id := s.demand(web)
		pass(time.Minute)
		if s.phase(id) != fleet.Pending || len(s.reported(problems.ReasonBuild)) == 0 {
			t.Errorf("want it to wait, and said why: %s", s.dump())
		}
		s.mu.Lock()
		s.build = nil
		s.mu.Unlock()
		pass(2 * time.Minute)
		if s.phase(id) != fleet.Running {
			t.Errorf("want it made: %s", s.dump())
		}
	})
}
