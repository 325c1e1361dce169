package reconcile_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/plan"
)

// TestDeletedManagedInstancesAreReplacedFirst: several requested at once leave one after the
// other, each after its replacement is ready, with never more than one beyond the size.
func TestDeletedManagedInstancesAreReplacedFirst(t *testing.T) {
	bubble(t, fake.Config{Boot: fake.Fixed(5 * time.Second)}, func(t *testing.T, s *shard) {
		s.wanted.edit(web, func(g *fleet.Group) { g.Size, g.DrainTimeout = 3, time.Minute })
		s.lead()
		pass(time.Minute)
		before := s.expectRunning(web, 3)
		s.bucket.onWrite = func(op string, i fleet.Instance) {
			running, active := s.bucket.count(web)
			if active > 4 || (op == "update-draining" && running < 3) {
				t.Errorf("%s of %s leaves %d running of %d", op, i.ID, running, active)
			}
		}
		for _, id := range before[1:] {
			s.askOut(id)
		}
		pass(5 * time.Minute)
		after := s.expectRunning(web, 3)
		if after[0] != before[0] || s.creates() != 5 {
			t.Errorf("%d creates; want two replaced and one left alone: %s", s.creates(), s.dump())
		}
		for _, id := range before[1:] {
			if r, _ := s.bucket.get(id); r.Phase != fleet.Deleted || r.Reason != plan.ReasonReplaceAsked {
				t.Errorf("%s is %s because of %q", id, r.Phase, r.Reason)
			}
		}
	})
}

// TestDeletedManagedInstanceWaitsForItsReplacement however long that takes, through changes
// of the leader.
func TestDeletedManagedInstanceWaitsForItsReplacement(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 1)
		s.lead()
		pass(time.Minute)
		id := s.expectRunning(web, 1)[0]
		s.world.FailNext(fake.OpCreate, 1000, fake.Fault{Err: provider.ErrUnauthorized})
		s.askOut(id)
		pass(time.Hour)
		if s.phase(id) != fleet.Running {
			t.Errorf("it went without a replacement: %s", s.dump())
		}
		_ = s.stop()
		s.lead()
		pass(time.Hour)
		if s.phase(id) != fleet.Running {
			t.Errorf("it went without a replacement: %s", s.dump())
		}
		s.size(web, 0) // no replacement is wanted any more
		pass(time.Minute)
		if s.phase(id) != fleet.Deleted || len(s.world.VMs()) != 0 {
			t.Errorf("want it gone: %s", s.dump())
		}
	})
}

// count counts the group's managed instances that run, and those that run or
// will. The bucket is locked.
func (b *bucket) count(key fleet.GroupKey) (running, active int) {
	for _, r := range b.records {
		if r.GroupKey() != key || r.OnDemand {
			continue
		}
		if r.Phase == fleet.Running {
			running++
		}
		if r.Phase.Active() {
			active++
		}
	}
	return running, active
}
