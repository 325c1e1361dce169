package reconcile_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
)

func (s *shard) vmsOf(id fleet.InstanceID) []provider.VM {
	return slices.DeleteFunc(s.world.VMs(), func(vm provider.VM) bool { return vm.ID != id })
}

// The VM of a record that was removed is no stray while its agent calls; the group is complete
// without it.
func TestRecordRemovedUnderALivingAgent(t *testing.T) {
	bubble(t, fake.Config{Boot: fake.Fixed(30 * time.Second)}, func(t *testing.T, s *shard) {
		s.size(web, 3)
		s.lead()
		pass(3 * time.Minute)
		victim := s.expectRunning(web, 3)[1]
		full, _ := s.bucket.get(victim)
		s.setCalls(victim, true)
		s.bucket.take(victim)
		pass(time.Hour)
		if len(s.vmsOf(victim)) != 1 || len(s.logged("stray VM deleted")) != 0 {
			t.Fatalf("a working machine was deleted as a stray: %s", s.dump())
		}
		s.expectRunning(web, 3)
		told := s.reported(problems.ReasonOrphans)
		if len(told) == 0 || !strings.Contains(told[0].Message, string(victim)) || told[0].Blocks {
			t.Errorf("problems: %v", told)
		}
		s.bucket.place(full)
		pass(5 * time.Minute)
		s.expectRunning(web, 3)
		if over := s.ended(); !slices.Equal(over, []string{problems.ReasonOrphans}) {
			t.Errorf("told of the end of %q", over)
		}
	})
}

// A shard with one machine that has a record, beside one that has none and calls, replaces it.
func TestTheOnlyRecordedMachineIsReplaced(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 1)
		s.lead()
		pass(time.Minute)
		first := s.expectRunning(web, 1)[0]
		s.setCalls(first, true)
		stray, _ := s.newID("knd", time.Now())
		s.setCalls(stray, true)
		s.world.Plant(scope.Tags(fleet.Instance{ID: stray, Tenant: web.Tenant, Group: web.Name}))
		_ = s.stop()
		s.lead()
		pass(3 * time.Minute)
		s.world.Vanish(first)
		pass(10 * time.Minute)
		if now := s.expectRunning(web, 1); now[0] == first || len(s.vmsOf(stray)) != 1 || s.term.held().Message != "" {
			t.Errorf("%v run, held %q: %s", now, s.term.held().Message, s.dump())
		}
	})
}

// A machine that calls no more is a stray, but only after as long as an agent may be silent.
func TestRecordRemovedUnderASilentAgent(t *testing.T) {
	bubble(t, fake.Config{Boot: fake.Fixed(30 * time.Second)}, func(t *testing.T, s *shard) {
		s.size(web, 3)
		s.lead()
		pass(3 * time.Minute)
		victim := s.expectRunning(web, 3)[1]
		s.setCalls(victim, true)
		s.bucket.take(victim)
		pass(30 * time.Minute)
		s.setCalls(victim, false)
		for range 600 { // replacement first
			pass(time.Second)
			if len(s.vmsOf(victim)) == 0 {
				break
			}
		}
		if len(s.vmsOf(victim)) != 0 {
			t.Fatalf("the VM without a record is still there: %s", s.dump())
		}
		s.expectRunning(web, 3)
		if n := len(s.running(web)); n != 3 {
			t.Errorf("deleted before its replacement ran: %d run", n)
		}
		if n := len(s.world.Calls(fake.OpCreate)); n != 4 {
			t.Errorf("%d creates, want 4", n)
		}
		if lines := s.logged("stray VM deleted"); len(lines) != 1 || lines[0]["instance"] != string(victim) {
			t.Errorf("log: %v", lines)
		}
	})
}

func TestOrphanStaysUntilTheGroupRunsWithoutIt(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 3)
		s.lead()
		pass(3 * time.Minute)
		victim := s.expectRunning(web, 3)[0]
		s.world.Outage(nil)
		s.build = func(fleet.Instance) error { return errStoreDown } // no replacement can be made
		s.bucket.take(victim)
		pass(30 * time.Minute)
		if len(s.vmsOf(victim)) != 1 {
			t.Errorf("deleted although nothing replaced it")
		}
	})
}

func TestStrayVMIsDeletedWhenItsAgentIsQuiet(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 2)
		s.lead()
		pass(3 * time.Minute) // sweeps at 0:30, 2:30, 4:30, 6:30
		own := s.expectRunning(web, 2)
		stray, _ := s.newID("knd", time.Now())
		tags := scope.Tags(fleet.Instance{ID: stray, Tenant: web.Tenant, Group: web.Name})
		s.world.Plant(tags)
		nameless := scope.Tags(fleet.Instance{ID: stray, Tenant: web.Tenant, Group: "unknown"})
		nameless[provider.TagInstanceID] = "not an id"
		s.world.Plant(nameless)
		foreign := scope.Tags(fleet.Instance{ID: stray})
		foreign[provider.TagShard] = "two"
		s.world.Plant(foreign)
		pass(quiet)
		if n := len(s.world.VMs()); n != 5 {
			t.Errorf("%d VMs before their agents were quiet for long enough, want all 5", n)
		}
		pass(4 * time.Minute)
		if n := len(s.world.VMs()); n != 3 { // two of ours and the other shard's
			t.Errorf("%d VMs after that, want 3: %s", n, s.dump())
		}
		if now := s.expectRunning(web, 2); !slices.Equal(now, own) {
			t.Errorf("the group changed from %v to %v", own, now)
		}
	})
}

func TestTwoVMsWithOneIDAndAVMOfATombstone(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 2)
		s.lead()
		pass(time.Minute)
		ids := s.expectRunning(web, 2)
		twin, _ := s.bucket.get(ids[1])
		other := s.world.Plant(scope.Tags(twin))
		s.size(web, 1)
		pass(time.Minute)
		dead := s.records(web, fleet.Deleted)
		s.size(web, 2)
		late, _ := s.bucket.get(dead[0])
		s.world.Plant(scope.Tags(late)) // a create that took effect late
		pass(10 * time.Minute)
		s.expectRunning(web, 2)
		if n := len(s.world.VMs()); n != 2 {
			t.Errorf("%d VMs, want 2: %s", n, s.dump())
		}
		for _, vm := range s.world.VMs() {
			if vm.ProviderID == other.ProviderID {
				t.Errorf("the twin stayed, and the recorded VM went")
			}
		}
		if !slices.Contains(s.running(web), ids[1]) {
			t.Errorf("the end of the twin was taken for that of %s", ids[1])
		}
	})
}

func TestEmptyStoreUnderALivingFleetHolds(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 12)
		s.lead()
		pass(time.Minute)
		ids := s.expectRunning(web, 12)
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		full := s.bucket.all()
		creates, deletes := len(s.world.Calls(fake.OpCreate)), len(s.world.Calls(fake.OpDelete))

		s.bucket.take(ids...)
		s.lead()
		pass(20 * time.Minute)
		if n := len(s.world.Calls(fake.OpCreate)) - creates; n != 0 {
			t.Errorf("%d creates on an empty store under a living fleet", n)
		}
		if n := len(s.world.Calls(fake.OpDelete)) - deletes; n != 0 {
			t.Errorf("%d deletes", n)
		}
		found := s.reported(problems.ReasonOrphans)
		if len(found) < 5 || !strings.Contains(found[0].Message, "12 VMs") || s.term.held().Message != found[0].Message {
			t.Errorf("problems: %v, held: %q", found, s.term.held().Message)
		}

		s.bucket.place(full...) // the records are restored
		pass(3 * time.Minute)
		if got := s.expectRunning(web, 12); !slices.Equal(got, ids) || s.term.held().Message != "" {
			t.Errorf("want the same twelve, and no hold: %q", s.term.held().Message)
		}
		if n := len(s.world.Calls(fake.OpCreate)) - creates; n != 0 {
			t.Errorf("%d creates after the records came back", n)
		}
	})
}

// The limit is never all that there are: a shard of one or two machines on another bucket keeps
// them, though no agent calls.
func TestEmptyStoreUnderASmallFleetHolds(t *testing.T) {
	for size := range 3 {
		bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
			s.size(web, size+1)
			s.lead()
			pass(time.Minute)
			ids := s.expectRunning(web, size+1)
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
			full, creates := s.bucket.all(), s.creates()
			s.bucket.take(ids...)
			s.lead()
			pass(time.Hour)
			if s.creates() != creates || s.deletes() != 0 {
				t.Errorf("%d creates and %d deletes on an empty store", s.creates()-creates, s.deletes())
			}
			s.bucket.place(full...)
			pass(3 * time.Minute)
			if got := s.expectRunning(web, size+1); !slices.Equal(got, ids) || s.term.held().Message != "" {
				t.Errorf("want the same, and no hold: %q", s.term.held().Message)
			}
		})
	}
}

func TestHoldEndsWhenTheVMsAreRemoved(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 5)
		s.lead()
		pass(time.Minute)
		ids := s.expectRunning(web, 5)
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		s.bucket.take(ids...)
		s.lead()
		pass(5 * time.Minute)
		for _, id := range ids {
			s.world.Vanish(id)
		}
		pass(5 * time.Minute)
		s.expectRunning(web, 5)
		if s.term.held().Message != "" {
			t.Errorf("still held: %s", s.term.held().Message)
		}
	})
}

func TestRecordsVanishingInMassUnderARunningServerHold(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 12)
		s.size(db, 1)
		s.lead()
		pass(3 * time.Minute)
		ids := s.expectRunning(web, 12)
		creates := len(s.world.Calls(fake.OpCreate))
		s.bucket.mu.Lock()
		s.bucket.linger = 5 * time.Second
		s.bucket.mu.Unlock()
		s.bucket.take(ids[:6]...)
		for range 600 {
			pass(time.Second)
			s.term.Enqueue()
		}
		if n := len(s.world.Calls(fake.OpCreate)) - creates; n != 0 {
			t.Errorf("%d creates after half the store was lost", n)
		}
		if s.term.held().Message == "" || len(s.world.VMs()) != 13 {
			t.Errorf("held: %q, %d VMs", s.term.held().Message, len(s.world.VMs()))
		}
	})
}

func TestStraysInMassStopOnlyTheirOwnDeletion(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 3)
		s.lead()
		pass(3 * time.Minute)
		for range 3 {
			id, _ := s.newID("knd", time.Now())
			s.world.Plant(scope.Tags(fleet.Instance{ID: id, Tenant: web.Tenant, Group: web.Name}))
		}
		pass(10 * time.Minute)
		if n := len(s.world.VMs()); n != 6 {
			t.Errorf("%d VMs, want the strays left alone", n)
		}
		s.world.Kill(s.running(web)[0])
		pass(10 * time.Second)
		s.expectRunning(web, 3)
		if s.term.held().Message != "" || len(s.reported(problems.ReasonOrphans)) == 0 || len(s.ended()) > 0 {
			t.Errorf("held %q, problems %v, over %v", s.term.held().Message, s.problems, s.ended())
		}
		for _, vm := range s.world.VMs() {
			if !slices.Contains(s.running(web), vm.ID) {
				s.world.Vanish(vm.ID)
			}
		}
		pass(10 * time.Minute)
		if over := s.ended(); !slices.Equal(over, []string{problems.ReasonOrphans}) {
			t.Errorf("told of the end of %q", over)
		}
	})
}

func TestVMThatIsGoneUnnoticedIsFoundByTheSweep(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.adjust = withoutWatch
		s.agents.muteAll = true
		s.wanted.settings.RegistrationTimeout = 0
		s.size(web, 2)
		s.size(db, 2)
		s.lead()
		pass(3 * time.Minute)
		ids := []fleet.InstanceID{s.records(web, fleet.Pending)[0], s.records(db, fleet.Pending)[0]}
		s.world.Vanish(ids[0])
		s.world.Stop(ids[1])
		pass(2 * time.Minute)
		for _, id := range ids {
			if r, _ := s.bucket.get(id); r.Phase.Active() {
				t.Errorf("%s is %s although its VM is gone", id, r.Phase)
			}
		}
		if web, db := len(s.records(web, fleet.Pending)), len(s.records(db, fleet.Pending)); web != 2 || db != 2 {
			t.Errorf("%d and %d pending, want 2 each: %s", web, db, s.dump())
		}
	})
}

func TestStrayRecordOfAnOlderTermIsNeverActedOn(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 1)
		s.lead()
		pass(10 * time.Second)
		s.expectRunning(web, 1)
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		s.lead()
		pass(10 * time.Second)
		late, _ := s.newID("knd", time.Now())
		now := time.Now()
		s.bucket.place(fleet.Instance{ // the old leader's last write lands now
			ID: late, Tenant: web.Tenant, Group: web.Name, Phase: fleet.Pending, Epoch: 1, Rev: 1, Writer: "server-1",
			CreatedAt: now, Provider: fleet.ProviderRef{CreateAttemptedAt: &now},
		})
		pass(time.Minute)
		if r, _ := s.bucket.get(late); r.Phase != fleet.Deleted || r.Reason != plan.ReasonStray {
			t.Errorf("record: %+v", r)
		}
		if n := len(s.world.CreateCalls(late)); n != 0 {
			t.Errorf("it was created")
		}
	})
}

func TestRestartAdoptsEverybody(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 5)
		s.lead()
		pass(time.Minute)
		ids := s.expectRunning(web, 5)
		for range 3 {
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
			pass(20 * time.Second)
			s.lead()
			pass(5 * time.Minute)
		}
		if got := s.expectRunning(web, 5); !slices.Equal(got, ids) {
			t.Errorf("%v became %v", ids, got)
		}
		if c, d := len(s.world.Calls(fake.OpCreate)), len(s.world.Calls(fake.OpDelete)); c != 5 || d != 0 {
			t.Errorf("%d creates and %d deletes, want 5 and 0", c, d)
		}
	})
}

func TestDeathDuringAFailoverIsFoundAtTakeover(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 5)
		s.lead()
		pass(3 * time.Minute)
		ids := s.expectRunning(web, 5)
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		s.world.Kill(ids[0])
		s.world.Vanish(ids[1])
		s.lead()
		pass(5 * time.Second)
		s.expectRunning(web, 5)
		if n := len(s.world.Calls(fake.OpCreate)); n != 7 {
			t.Errorf("%d creates, want 7", n)
		}
	})
}

func TestIdleCost(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 20)
		s.lead()
		pass(time.Hour)
		lists, writes := s.bucket.listed(), s.bucket.written()
		pass(time.Hour)
		if n := s.bucket.listed() - lists; n > 30 {
			t.Errorf("%d listings of the store in an idle hour, want at most 30", n)
		}
		if n := s.bucket.written() - writes; n != 0 {
			t.Errorf("%d writes in an idle hour", n)
		}
	})
}

func TestLargeShardIsListedLessOften(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.agents.muteAll = true
		now := time.Now()
		for range 2500 {
			id, _ := s.newID("knd", now)
			deleted := now.Add(24 * time.Hour) // tombstones that stay for the test
			s.bucket.place(fleet.Instance{ID: id, Tenant: "default", Group: "web", Phase: fleet.Deleted, Rev: 1, DeletedAt: &deleted})
		}
		s.lead()
		pass(time.Hour)
		if n := s.bucket.listed(); n < 8 || n > 11 { // three requests each
			t.Errorf("%d listings in an hour, want about 10", n)
		}
	})
}

// unasked is a provider whose Gets fail until its first List.
type unasked struct {
	*fake.Provider
	listed *atomic.Bool
}

func (u unasked) Get(ctx context.Context, refs []provider.Ref) []provider.Answer {
	if u.listed.Load() {
		return u.Provider.Get(ctx, refs)
	}
	return slices.Repeat([]provider.Answer{{Err: fake.ErrLost}}, len(refs))
}

func (u unasked) List(ctx context.Context) ([]provider.VM, error) {
	vms, err := u.Provider.List(ctx)
	u.listed.Store(true)
	return vms, err
}
