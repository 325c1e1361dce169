package reconcile_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// The VM of a malformed record is neither deleted nor replaced, and the rest of its group is
// reconciled as usual.
func TestVMOfAMalformedRecordIsLeftAlone(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 5)
		s.lead()
		pass(3 * time.Minute)
		ids := s.expectRunning(web, 5)
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		s.bucket.spoil(ids[:3]...) // more than the limit
		s.lead()
		pass(20 * time.Minute)
		if c, d := len(s.world.Calls(fake.OpCreate)), len(s.world.Calls(fake.OpDelete)); c != 5 || d != 0 || s.term.held().Message != "" {
			t.Fatalf("%d creates and %d deletes, held %q: %s", c, d, s.term.held().Message, s.dump())
		}
		found := s.reported(problems.ReasonMalformed)
		if len(found) != 3 || !slices.Contains(ids[:3], found[0].Instance) {
			t.Errorf("want each reported once: %v", found)
		}
		s.world.Kill(ids[3])
		pass(time.Minute)
		if n := len(s.running(web)); n != 2 {
			t.Errorf("the rest of the group is not looked after: %s", s.dump())
		}
		s.world.Vanish(ids[0]) // a VM that is gone does not count
		pass(5 * time.Minute)
		s.expectRunning(web, 3)
		s.size(web, 1)
		pass(10 * time.Minute)
		if len(s.running(web)) != 1 || !s.isAlive(ids[1]) || !s.isAlive(ids[2]) {
			t.Errorf("want one beside the two without a readable record, which may be on-demand ones: %s", s.dump())
		}
	})
}

// mending is a ledger with a hook right before a group's records are read.
type mending struct {
	reconcile.Ledger
	before atomic.Pointer[func()]
}

func (m *mending) Members(key fleet.GroupKey, room []*fleet.Instance) []*fleet.Instance {
	if mend := m.before.Swap(nil); mend != nil {
		(*mend)()
	}
	return m.Ledger.Members(key, room)
}

// A record that becomes readable during a pass is not counted twice.
func TestRecordThatIsMendedDuringAPass(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 3)
		s.lead()
		pass(3 * time.Minute)
		ids := s.expectRunning(web, 3)
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		good, _ := s.bucket.get(ids[0])
		s.bucket.spoil(ids[0])
		m := &mending{}
		s.adjust = func(c *reconcile.Config) { m.Ledger, c.Ledger = c.Ledger, m }
		s.lead()
		pass(5 * time.Second) // the silence of the agent without a record does not count yet
		if n := len(s.running(web)); n != 2 {
			t.Fatalf("%d run beside the one that a spoiled record speaks of", n)
		}
		mend := func() { s.bucket.mend(s.term.ledger, good) }
		m.before.Store(&mend)
		s.term.Enqueue(web)
		pass(5 * time.Second)
		if c, d := len(s.world.Calls(fake.OpCreate)), len(s.world.Calls(fake.OpDelete)); c != 3 || d != 0 || m.before.Load() != nil {
			t.Errorf("%d creates and %d deletes, want 3 and none: %s", c, d, s.dump())
		}
		s.expectRunning(web, 3)
	})
}

// For a record that appears long after the takeover, because it was repaired or restored
// externally, missed reports from before don't count: its agent could not connect.
func TestRecordThatIsMendedLongAfterATakeover(t *testing.T) {
	for name, spoil := range map[string]func(*bucket, ...fleet.InstanceID){
		"mended": (*bucket).spoil, "put back": (*bucket).take,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				s.wanted.settings.MissedReports = 6 // a minute, so that agents can reconnect
				s.size(web, 3)
				s.lead()
				pass(3 * time.Minute)
				ids := s.expectRunning(web, 3)
				good, _ := s.bucket.get(ids[0])
				s.build = func(fleet.Instance) error { return errStoreDown } // no replacement can be created
				if err := s.stop(); err != nil {
					t.Fatal(err)
				}
				spoil(s.bucket, ids[0])
				s.agents.mute = map[fleet.InstanceID]bool{ids[0]: true} // until it reconnects
				s.lead()
				pass(20 * time.Minute)
				s.bucket.mend(s.term.ledger, good)
				s.term.Enqueue(web)
				pass(59 * time.Second) // without a report of its agent
				if h := s.term.Health(ids[0]); h.Unhealthy != "" {
					t.Fatalf("judged by a silence from before: %+v: %s", h, s.dump())
				}
				pass(2 * time.Second) // from then on it counts
				if h := s.term.Health(ids[0]); h.Unhealthy == "" {
					t.Errorf("silent for ever, and well: %+v", h)
				}
			})
		})
	}
}

// An object that does not name its instance may belong to any VM.
func TestNoStrayIsDeletedBesideANamelessObject(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 2)
		s.lead()
		pass(time.Minute)
		id, _ := s.newID("knd", time.Now())
		stray := s.world.Plant(scope.Tags(fleet.Instance{ID: id, Tenant: web.Tenant, Group: web.Name}))
		s.bucket.mu.Lock()
		s.bucket.malformed = []fleet.Malformed{{Key: "instance/one/x", Err: errors.New("no id")}}
		s.bucket.mu.Unlock()
		pass(20 * time.Minute)
		if len(s.vmsOf(id)) != 1 || len(s.reported(problems.ReasonMalformed)) != 1 {
			t.Errorf("%s: %s", stray.ProviderID, s.dump())
		}
		s.bucket.mu.Lock()
		s.bucket.malformed = nil
		s.bucket.mu.Unlock()
		pass(5 * time.Minute)
		if len(s.vmsOf(id)) != 0 {
			t.Errorf("the stray stays although nothing speaks for it: %s", s.dump())
		}
	})
}

// A server that dies during a create leaves an incomplete VM, which only a repeated create
// completes.
func TestHalfMadeVMIsCompletedNotAdopted(t *testing.T) {
	bubble(t, fake.Config{Boot: fake.Fixed(time.Hour)}, func(t *testing.T, s *shard) {
		s.size(web, 1)
		id, _ := s.newID("knd", time.Now())
		now := time.Now()
		r := fleet.Instance{
			ID: id, Tenant: web.Tenant, Group: web.Name, Phase: fleet.Pending, Epoch: 1, Rev: 1, Writer: "server-0",
			CreatedAt: now, Provider: fleet.ProviderRef{CreateAttemptedAt: &now},
		}
		s.bucket.place(r)
		vm := s.world.Plant(scope.Tags(r))
		s.lead()
		pass(time.Minute)
		got, _ := s.bucket.get(id)
		if n := len(s.world.CreateCalls(id)); n != 1 || got.Provider.ID != vm.ProviderID || len(s.world.VMs()) != 1 {
			t.Errorf("%d creates: %s", n, s.dump())
		}
	})
}

// A create whose record could not be written is dropped when its group shrinks meanwhile.
func TestUnrecordedCreatesShrinkWithTheGroup(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.bucket.fail = func(op string, _ fleet.InstanceID) (bool, error) { return op != "create", errStoreDown }
		s.size(web, 4)
		s.lead()
		pass(5 * time.Second)
		s.size(web, 1)
		s.bucket.mu.Lock()
		s.bucket.fail = nil
		s.bucket.mu.Unlock()
		pass(time.Minute)
		s.expectRunning(web, 1)
		if n := len(s.world.Calls(fake.OpCreate)); n != 1 {
			t.Errorf("%d creates for one instance", n)
		}
	})
}

// While the VM's provider ID can't be stored, calls to the provider back off.
func TestCreateIsNotRepeatedAtLineRate(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.agents.muteAll = true
		s.bucket.fail = func(op string, _ fleet.InstanceID) (bool, error) {
			if op == "create" {
				return true, nil
			}
			return false, errStoreDown
		}
		s.bucket.latency = time.Millisecond
		s.size(web, 1)
		s.lead()
		pass(time.Minute)
		if n := len(s.world.Calls(fake.OpCreate)); n < 3 || n > 12 {
			t.Errorf("%d creates in a minute", n)
		}
	})
}

// A permanent failure is reported once.
func TestConflictForEverIsToldOnce(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 1)
		s.lead()
		pass(time.Minute)
		s.expectRunning(web, 1)
		s.bucket.mu.Lock()
		s.bucket.fail = func(string, fleet.InstanceID) (bool, error) { return false, errors.New("conflict") }
		s.bucket.mu.Unlock()
		s.size(web, 0)
		pass(10 * time.Minute)
		if p := s.reported(problems.ReasonStorage); len(p) != 1 {
			t.Errorf("%d problems, want 1: %v", len(p), p)
		}
	})
}
