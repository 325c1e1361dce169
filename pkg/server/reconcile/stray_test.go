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
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// A VM without a record stays as long as the record of its group is missing, even if as many others
// run as the group is held at: its size is not known.
func TestStrayOfAGroupWhoseRecordIsMissing(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 3)
		s.lead()
		pass(3 * time.Minute)
		victim := s.expectRunning(web, 3)[1]
		s.wanted.edit(web, func(g *fleet.Group) { g.RecordMissing = "its record is missing" })
		s.bucket.take(victim)
		pass(time.Hour)
		s.expectRunning(web, 3)
		if len(s.vmsOf(victim)) != 1 {
			t.Fatalf("it was deleted: %s", s.dump())
		}
		s.wanted.edit(web, func(g *fleet.Group) { g.RecordMissing = "" })
		pass(5 * time.Minute)
		if len(s.vmsOf(victim)) != 0 {
			t.Errorf("it stays although the record of its group is back: %s", s.dump())
		}
	})
}

// On-demand instances take no place of a VM without a record: it stays while nothing replaces it.
func TestStrayBesideOnDemand(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 3)
		s.lead()
		s.demand(web)
		pass(3 * time.Minute)
		victim := s.expectManaged(web, 3)[1]
		s.build = func(fleet.Instance) error { return errStoreDown } // no replacement can be made
		s.bucket.take(victim)
		pass(30 * time.Minute)
		if len(s.vmsOf(victim)) != 1 || len(s.running(web)) != 3 {
			t.Errorf("it was deleted although nothing replaced it: %s", s.dump())
		}
	})
}

// asking is a provider with a hook before the first Get of a VM.
type asking struct {
	*fake.Provider
	of     *atomic.Pointer[fleet.InstanceID]
	before func()
}

func (a asking) Get(ctx context.Context, refs []provider.Ref) []provider.Answer {
	id := a.of.Load()
	if id != nil && slices.ContainsFunc(refs, func(r provider.Ref) bool { return r.ID == *id }) && a.of.CompareAndSwap(id, nil) {
		a.before()
	}
	return a.Provider.Get(ctx, refs)
}

// A VM that was a stray in two sweeps is looked at once more before it is deleted.
func TestStrayThatIsNoneAnyMore(t *testing.T) {
	for name, ends := range map[string]func(s *shard, full fleet.Instance){
		"its agent calls":                  func(s *shard, full fleet.Instance) { s.setCalls(full.ID, true) },
		"its record is there":              func(s *shard, full fleet.Instance) { s.bucket.place(full) },
		"its record is there, and damaged": func(s *shard, full fleet.Instance) { s.bucket.place(full); s.bucket.spoil(full.ID) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				var of atomic.Pointer[fleet.InstanceID]
				var full fleet.Instance
				s.adjust = func(c *reconcile.Config) {
					c.Provider = asking{s.world.Open(scope, "server"), &of, func() { ends(s, full) }}
				}
				s.size(web, 3)
				s.lead()
				pass(3 * time.Minute)
				full, _ = s.bucket.get(s.expectRunning(web, 3)[1])
				s.bucket.take(full.ID)
				pass(time.Second)
				of.Store(&full.ID)
				pass(20 * time.Minute)
				if of.Load() != nil || len(s.vmsOf(full.ID)) != 1 {
					t.Errorf("looked at: %v, %s", of.Load() == nil, s.dump())
				}
			})
		})
	}
}

// The second VM of an instance is deleted only when two sweeps in a row saw it.
func TestSecondVMIsSeenTwice(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 1)
		s.lead()
		pass(time.Minute) // sweeps at 0:30, 2:30, 4:30
		own, _ := s.bucket.get(s.expectRunning(web, 1)[0])
		s.world.Plant(scope.Tags(own))
		pass(2 * time.Minute)
		if n := len(s.world.VMs()); n != 2 {
			t.Errorf("%d VMs after one sweep, want 2", n)
		}
		pass(2 * time.Minute)
		if n := len(s.world.VMs()); n != 1 {
			t.Errorf("%d VMs after two sweeps, want 1", n)
		}
	})
}
