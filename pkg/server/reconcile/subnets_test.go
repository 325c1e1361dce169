package reconcile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// plain hides all optional capabilities of a provider.
func plain(c *reconcile.Config) { c.Provider = struct{ provider.Provider }{c.Provider} }

// createsIn counts the creates that were sent by subnet.
func (s *shard) createsIn() map[string]int {
	in := map[string]int{}
	for _, c := range s.world.Calls(fake.OpCreate) {
		in[c.Subnet]++
	}
	return in
}

func TestFullSubnetIsNotAsked(t *testing.T) {
	cfg := fake.Config{
		Capacity:      map[string]int{"subnet-a": 2, "subnet-b": 100},
		CreateLatency: fake.Fixed(100 * time.Millisecond), AsideLatency: fake.Fixed(100 * time.Millisecond),
	}
	bubble(t, cfg, func(t *testing.T, s *shard) {
		s.size(web, 40)
		s.lead()
		pass(20 * time.Second)
		s.expectRunning(web, 40)
		if in := s.createsIn(); in["subnet-a"] != 2 || in["subnet-b"] != 38 {
			t.Errorf("creates by subnet: %v", in)
		}
		if n := len(s.world.Calls(fake.OpCapacity)); n != 1 {
			t.Errorf("%d questions for free addresses, want one for all forty", n)
		}
		for _, r := range s.bucket.all() {
			if vm, ok := s.world.Spec(r.ID); !ok || vm.Subnet != r.Provider.Subnet {
				t.Errorf("record of %s names subnet %q, the VM is in %q", r.ID, r.Provider.Subnet, vm.Subnet)
			}
		}
	})
}

func TestPoolWithoutRoomBacksOffAndRecovers(t *testing.T) {
	bubble(t, fake.Config{Capacity: map[string]int{"subnet-a": 0, "subnet-b": 0, "subnet-c": 9}}, func(t *testing.T, s *shard) {
		s.wanted.edit(web, func(g *fleet.Group) { g.SubnetPool = "workers" })
		s.wanted.edit(db, func(g *fleet.Group) { g.Subnets = []string{"subnet-c"} })
		s.size(web, 3)
		s.size(db, 3)
		s.lead()
		pass(5 * time.Minute)
		s.expectRunning(db, 3)
		if n := len(s.records(web, fleet.Pending, fleet.Deleted)); n != 0 || s.createsIn()["subnet-a"] != 0 {
			t.Errorf("%d records, and creates %v, of a pool that is known to be full", n, s.createsIn())
		}
		if n := len(s.world.Calls(fake.OpCapacity)); n > 12 {
			t.Errorf("%d questions for free addresses in five minutes", n)
		}
		found := s.reported(problems.ReasonSubnetFull)
		if len(found) == 0 || len(found) > 30 || found[0].Group != web {
			t.Fatalf("problems: %v", found)
		}
		for _, name := range []string{"workers", "subnet-a", "subnet-b"} {
			if !strings.Contains(found[0].Message, name) {
				t.Errorf("the problem does not name %s: %s", name, found[0].Message)
			}
		}
		s.world.SetCapacity(map[string]int{"subnet-a": 0, "subnet-b": 5, "subnet-c": 9})
		pass(6 * time.Minute)
		s.expectRunning(web, 3)
	})
}

// TestHintsMayBeWrong: a subnet with reported free addresses refuses, and is not tried for a
// while; subnets with unknown free addresses are tried.
func TestHintsMayBeWrong(t *testing.T) {
	bubble(t, fake.Config{Capacity: map[string]int{"subnet-a": 50, "subnet-b": 50}}, func(t *testing.T, s *shard) {
		s.adjust = func(c *reconcile.Config) { c.CreateRate.Concurrency = 1 }
		s.world.FailNext(fake.OpCreate, 1, fake.Fault{Err: provider.ErrSubnetFull})
		s.size(web, 4)
		s.lead()
		pass(10 * time.Second)
		s.expectRunning(web, 4)
		if in := s.createsIn(); in["subnet-a"] != 1 || in["subnet-b"] != 4 {
			t.Errorf("creates by subnet: %v", in)
		}
		pass(time.Minute)
		s.size(web, 6)
		pass(10 * time.Second)
		if in := s.createsIn(); in["subnet-a"] != 3 {
			t.Errorf("creates by subnet a while later: %v", in)
		}
		s.world.FailNext(fake.OpCapacity, 100, fake.Fault{Err: provider.ErrThrottled})
		pass(time.Minute)
		s.size(web, 9)
		pass(10 * time.Second)
		s.expectRunning(web, 9)
	})
}

// TestQuotaIsNotAMatterOfSubnets: if the zone's capacity or the account's quota is used up, the
// group backs off at once: no other subnet is tried, none counts as full, and the next attempt
// begins with the same subnet.
func TestQuotaIsNotAMatterOfSubnets(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.adjust = func(c *reconcile.Config) { c.Uniform = func() float64 { return 0.99 } }
		s.world.FailNext(fake.OpCreate, 3, fake.Fault{Err: fmt.Errorf("%w: no more of type huge", provider.ErrQuota)})
		s.size(web, 1)
		s.lead()
		pass(1500 * time.Millisecond) // asked twice at once, and after one second
		s.size(db, 1)
		pass(1200 * time.Millisecond)
		s.expectRunning(db, 1)
		if n := len(s.running(web)); n != 0 {
			t.Errorf("%d running before the back-off is over: %s", n, s.dump())
		}
		pass(10 * time.Second)
		s.expectRunning(web, 1)
		if in := s.createsIn(); in["subnet-a"] != 5 || in["subnet-b"] != 0 {
			t.Errorf("creates by subnet: %v", in)
		}
		found := append(s.reported(problems.ReasonQuota), s.reported(problems.ReasonCreatesFailing)...)
		if len(found) != 2 || found[0].Group != web || !strings.Contains(found[0].Message, "no more of type huge") {
			t.Errorf("problems: %v", found)
		}
		if full := s.reported(problems.ReasonSubnetFull); len(full) != 0 {
			t.Errorf("subnets are said to be full: %v", full)
		}
	})
}

func TestSubnetThatDoesNotExistIsReportedAndSkipped(t *testing.T) {
	bubble(t, fake.Config{Capacity: map[string]int{"subnet-b": 5}}, func(t *testing.T, s *shard) {
		s.size(web, 2)
		s.lead()
		pass(10 * time.Second)
		s.expectRunning(web, 2)
		pass(10 * time.Minute)
		if p := s.reported(problems.ReasonSubnet); len(p) != 1 || !strings.Contains(p[0].Message, "subnet-a") {
			t.Errorf("problems: %v", p)
		}
	})
}

// TestRepeatedCreateStaysInItsSubnet: a create is retried in the same subnet, by the same leader
// and by the next, whatever its free addresses, because the idempotency token only matches there.
func TestRepeatedCreateStaysInItsSubnet(t *testing.T) {
	for _, crash := range []bool{false, true} {
		for _, applied := range []bool{false, true} {
			t.Run(fmt.Sprintf("crash=%t applied=%t", crash, applied), func(t *testing.T) {
				cfg := fake.Config{Capacity: map[string]int{"subnet-a": 0, "subnet-b": 5}, CreateLatency: fake.Fixed(time.Second)}
				bubble(t, cfg, func(t *testing.T, s *shard) {
					s.world.FailNext(fake.OpCreate, 1, fake.Fault{Err: fake.ErrLost, Applied: applied})
					s.size(web, 1)
					s.lead()
					pass(500 * time.Millisecond)
					if crash {
						_ = s.stop()
					}
					s.world.SetCapacity(map[string]int{"subnet-a": 5, "subnet-b": 5})
					if crash {
						s.lead()
					}
					pass(2 * time.Minute)
					s.expectRunning(web, 1)
					if in := s.createsIn(); in["subnet-a"] != 0 {
						t.Errorf("creates by subnet: %v", in)
					}
					if n := len(s.world.VMs()); n != 1 {
						t.Errorf("%d VMs: %s", n, s.dump())
					}
				})
			})
		}
	}
}

// TestRepeatedCreateDoesNotMoveOn: a repeated create that finds its subnet full says nothing about
// the first one. The instance is given up after the registration timeout, and a new one goes to
// another subnet.
func TestRepeatedCreateDoesNotMoveOn(t *testing.T) {
	cfg := fake.Config{Capacity: map[string]int{"subnet-a": 1, "subnet-b": 5}, CreateLatency: fake.Fixed(time.Second)}
	bubble(t, cfg, func(t *testing.T, s *shard) {
		s.world.FailNext(fake.OpCreate, 1, fake.Fault{Err: fake.ErrLost})
		s.size(web, 1)
		s.lead()
		pass(500 * time.Millisecond)
		_ = s.stop()
		first := s.records(web, fleet.Pending)
		s.world.SetCapacity(map[string]int{"subnet-a": 0, "subnet-b": 5})
		s.lead()
		pass(4 * time.Minute)
		if in := s.createsIn(); in["subnet-b"] != 0 || in["subnet-a"] < 3 || len(first) != 1 {
			t.Errorf("creates by subnet: %v", in)
		}
		pass(10 * time.Minute)
		if ids := s.expectRunning(web, 1); ids[0] == first[0] {
			t.Errorf("%s moved on: %s", first[0], s.dump())
		}
	})
}

// TestNextSubnetIsRecordedBeforeItIsAsked: the record names the subnet where a VM may be, also after
// a refusal, a crash at any step, and failed writes.
func TestNextSubnetIsRecordedBeforeItIsAsked(t *testing.T) {
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprintf("applied=%t", applied), func(t *testing.T) {
			bubble(t, fake.Config{CreateLatency: fake.Fixed(100 * time.Millisecond)}, func(t *testing.T, s *shard) {
				failed := false
				s.bucket.fail = func(op string, _ fleet.InstanceID) (bool, error) {
					if op != "update-pending" || failed {
						return true, nil
					}
					failed = true
					return applied, errStoreDown
				}
				s.world.FailNext(fake.OpCreate, 1, fake.Fault{Err: provider.ErrSubnetFull})
				s.size(web, 1)
				s.lead()
				for range 600 {
					pass(100 * time.Millisecond)
					for _, c := range s.world.Calls(fake.OpCreate) {
						if r, _ := s.bucket.get(c.Ref.ID); c.End.IsZero() && r.Provider.Subnet != c.Subnet {
							t.Fatalf("asked in %s while the record says %q", c.Subnet, r.Provider.Subnet)
						}
					}
				}
				s.expectRunning(web, 1)
				if n := len(s.world.VMs()); n != 1 || !failed {
					t.Errorf("%d VMs: %s", n, s.dump())
				}
			})
		})
	}
}

// TestTombstoneOfUnknownOutcomeIsNotCreated: a failed create whose tombstone may have been written
// is not retried before that is known.
func TestTombstoneOfUnknownOutcomeIsNotCreated(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		failed := false
		s.bucket.fail = func(op string, _ fleet.InstanceID) (bool, error) {
			if !strings.HasPrefix(op, "update") || failed {
				return true, nil
			}
			failed = true
			return true, errStoreDown
		}
		s.world.FailNext(fake.OpCreate, 1, fake.Fault{Err: provider.ErrInvalid})
		s.size(web, 1)
		s.lead()
		pass(time.Minute)
		s.expectRunning(web, 1)
		calls := s.world.Calls(fake.OpCreate)
		ids := map[fleet.InstanceID]bool{}
		for _, c := range calls {
			ids[c.Ref.ID] = true
		}
		if len(calls) != 2 || len(ids) != 2 {
			t.Errorf("creates: %v", calls)
		}
		if dead := s.records(web, fleet.Deleted); len(dead) != 1 || !slices.Contains(dead, calls[0].Ref.ID) {
			t.Errorf("tombstones: %v", dead)
		}
	})
}
