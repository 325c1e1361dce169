package reconcile_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

func TestRegistrationTimeout(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.agents.muteAll = true
		s.size(web, 1)
		s.lead()
		pass(4 * time.Minute)
		first := s.records(web, fleet.Pending)
		pass(2 * time.Minute)
		if second := s.records(web, fleet.Pending); len(second) != 1 || second[0] == first[0] {
			t.Errorf("an instance that never registered was not replaced: %s", s.dump())
		}
		if n := len(s.world.VMs()); n != 1 {
			t.Errorf("%d VMs", n)
		}
	})
}

func TestDeleteThatFailsIsRepeated(t *testing.T) {
	bubble(t, fake.Config{Shutdown: fake.Fixed(2 * time.Second)}, func(t *testing.T, s *shard) {
		s.size(web, 2)
		s.lead()
		pass(2 * time.Minute)
		writes := 0
		s.bucket.mu.Lock()
		s.bucket.onWrite = func(op string, _ fleet.Instance) {
			if op == "update-deleting" {
				writes++
			}
		}
		s.bucket.mu.Unlock()
		s.world.FailNext(fake.OpDelete, 2, fake.Fault{Err: fake.ErrLost})
		s.world.FailNext(fake.OpDelete, 1, fake.Fault{Hang: true})
		s.size(web, 1)
		pass(time.Second / 4)
		if n := len(s.records(web, fleet.Deleting)); n != 1 {
			t.Errorf("want the record to say deleting first: %s", s.dump())
		}
		pass(2 * time.Minute)
		s.expectRunning(web, 1)
		if n := len(s.records(web, fleet.Deleted)); n != 1 || len(s.world.VMs()) != 1 {
			t.Errorf("want one tombstone and one VM: %s", s.dump())
		}
		if n := len(s.world.Calls(fake.OpDelete)); n != 4 {
			t.Errorf("%d deletes, want 4", n)
		}
		if n := len(s.reported(problems.ReasonProvider)); n != 2 { // the second failed as the first did
			t.Errorf("%d problems, want 2", n)
		}
		if writes != 1 {
			t.Errorf("the move to deleting was written %d times", writes)
		}
	})
}

func TestYoungInstanceIsBuriedWithoutDelay(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.adjust = withoutWatch
		s.size(web, 3)
		s.lead()
		pass(5 * time.Second)
		s.expectRunning(web, 3)
		s.size(web, 0)
		pass(2 * time.Second)
		if n := len(s.records(web, fleet.Deleted)); n != 3 {
			t.Errorf("%d tombstones, want 3: %s", n, s.dump())
		}
	})
}

func TestDeletionOfAVMThatWasNeverShownWaitsUntilItsAbsenceIsSure(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		blind := &blindProvider{Provider: s.world.Open(scope, "server-1"), blind: true}
		s.adjust = func(c *reconcile.Config) { c.Provider = blind }
		s.agents.muteAll = true // it does not register
		s.size(web, 1)
		s.lead()
		pass(5 * time.Second)
		s.size(web, 0)
		pass(20 * time.Second)
		if n := len(s.records(web, fleet.Deleted)); n != 0 {
			t.Errorf("an absence was believed too soon")
		}
		pass(time.Minute)
		if n := len(s.records(web, fleet.Deleted)); n != 1 {
			t.Errorf("want a tombstone: %s", s.dump())
		}
	})
}

func TestEndOfAVMIsPolledFor(t *testing.T) {
	bubble(t, fake.Config{Shutdown: fake.Fixed(12 * time.Second)}, func(t *testing.T, s *shard) {
		s.adjust = withoutWatch
		s.size(web, 12)
		s.lead()
		pass(2 * time.Minute)
		s.size(web, 0)
		gets, lists := len(s.world.Calls(fake.OpGet)), len(s.world.Calls(fake.OpList))
		pass(18 * time.Second)
		if n := len(s.records(web, fleet.Deleted)); n != 12 {
			t.Errorf("%d tombstones, want 12: %s", n, s.dump())
		}
		if g, l := len(s.world.Calls(fake.OpGet))-gets, len(s.world.Calls(fake.OpList))-lists; g+l > 60 {
			t.Errorf("%d gets and %d lists for the end of 12 VMs", g, l)
		}
		if n := len(s.world.Calls(fake.OpDelete)); n != 12 {
			t.Errorf("%d deletes", n)
		}
	})
}

func TestGroupThatIsRemovedTakesUnrecordedCreatesWithIt(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.bucket.fail = func(op string, _ fleet.InstanceID) (bool, error) { return op != "create", errStoreDown }
		s.size(web, 2)
		s.lead()
		pass(5 * time.Second)
		s.bucket.mu.Lock()
		s.bucket.fail = nil
		s.bucket.mu.Unlock()
		s.wanted.edit(web, func(g *fleet.Group) { g.Removed = true })
		s.term.Enqueue(web)
		pass(time.Minute)
		if c, r := len(s.world.Calls(fake.OpCreate)), len(s.bucket.all()); c != 0 || r != 0 {
			t.Errorf("%d creates and %d records for a group that is removed", c, r)
		}
		if len(s.wanted.forgot) != 1 {
			t.Errorf("the group was not forgotten")
		}
	})
}
