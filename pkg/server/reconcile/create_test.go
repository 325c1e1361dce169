package reconcile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/fair"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

func TestSubnetsAreTriedInOrder(t *testing.T) {
	bubble(t, fake.Config{Capacity: map[string]int{"subnet-a": 2, "subnet-b": 10}}, func(t *testing.T, s *shard) {
		s.size(web, 5)
		s.lead()
		pass(10 * time.Second)
		s.expectRunning(web, 5)
		in := map[string]int{}
		for _, r := range s.bucket.all() {
			in[r.Provider.Subnet]++
		}
		if in["subnet-a"] != 2 || in["subnet-b"] != 3 {
			t.Errorf("records by subnet: %v", in)
		}
	})
}

func TestDefiniteFailureLeavesATombstoneAndBacksOff(t *testing.T) {
	bubble(t, fake.Config{Capacity: map[string]int{"subnet-a": 0, "subnet-b": 1, "subnet-c": 5}}, func(t *testing.T, s *shard) {
		s.adjust = plain // it can't tell how many addresses are free
		s.wanted.edit(db, func(g *fleet.Group) { g.Subnets = []string{"subnet-c"} })
		s.size(web, 2)
		s.lead()
		pass(10 * time.Second)
		s.size(db, 2) // a group that fails keeps no other waiting
		pass(2 * time.Second)
		s.expectRunning(db, 2)

		pass(time.Hour)
		s.expectRunning(web, 1)
		for _, r := range s.bucket.all() {
			if r.Phase == fleet.Deleted && (r.Reason != plan.ReasonCreateFailed || r.DeletedAt == nil) {
				t.Errorf("tombstone: %+v", r)
			}
		}
		// 1, 2, 4 … 256 s, then every five minutes, at first and for each subnet.
		n := 0
		for _, c := range s.world.Calls(fake.OpCreate) {
			if c.Subnet == "subnet-a" {
				n++
			}
		}
		if n < 15 || n > 30 {
			t.Errorf("%d attempts in an hour: %s", n, s.dump())
		}
		found := s.reported(problems.ReasonSubnetFull)
		if len(found) == 0 || found[0].Group != web || found[0].Instance == "" || !strings.Contains(found[0].Message, "subnet-a") {
			t.Errorf("problems: %v", found)
		}
		// A changed configuration is tried at once.
		s.wanted.edit(web, func(g *fleet.Group) { g.Subnets, g.Hashes.Infra = []string{"subnet-c"}, "i2" })
		s.wanted.edit(web, func(g *fleet.Group) { g.Size = 2 })
		s.term.Enqueue(web)
		pass(5 * time.Second)
		if n := len(s.running(web)); n < 2 {
			t.Errorf("%d running right after the change", n)
		}
	})
}

func TestCreatesThatFailTogetherBackOffOnce(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(100 * time.Millisecond)}, func(t *testing.T, s *shard) {
		s.world.FailNext(fake.OpCreate, 16, fake.Fault{Err: provider.ErrQuota})
		s.size(web, 16)
		s.lead()
		pass(1500 * time.Millisecond) // 0.1 s of creates, 1 s of waiting, 0.1 s again
		if n := len(s.world.VMs()); n != 16 {
			t.Errorf("%d VMs; sixteen creates that failed together waited as if one after the other", n)
		}
	})
}

func TestUnknownOutcomeIsTriedAgainWithTheSameID(t *testing.T) {
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprintf("applied=%t", applied), func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				s.world.FailNext(fake.OpCreate, 3, fake.Fault{Err: fake.ErrLost, Applied: applied})
				s.size(web, 1)
				s.agents.muteAll = true
				s.lead()
				pass(time.Minute)
				calls := s.world.Calls(fake.OpCreate)
				if len(calls) != 4 || len(s.world.VMs()) != 1 {
					t.Fatalf("%d creates and %d VMs, want 4 and 1", len(calls), len(s.world.VMs()))
				}
				for _, c := range calls {
					if c.Ref.ID != calls[0].Ref.ID {
						t.Errorf("a second id was used: %v", c.Ref)
					}
				}
				r, _ := s.bucket.get(calls[0].Ref.ID)
				if r.Phase != fleet.Pending || r.Provider.ID == "" {
					t.Errorf("record: %+v", r)
				}
			})
		})
	}
}

func TestRecordWhoseWriteFailedKeepsItsPlaceAndItsID(t *testing.T) {
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprintf("applied=%t", applied), func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				failures := 3
				s.bucket.fail = func(op string, _ fleet.InstanceID) (bool, error) {
					if op != "create" || failures == 0 {
						return true, nil
					}
					failures--
					return applied, errStoreDown
				}
				s.size(web, 1)
				s.lead()
				pass(time.Minute)
				s.expectRunning(web, 1)
				if n := len(s.bucket.all()); n != 1 {
					t.Errorf("%d records, want 1: %s", n, s.dump())
				}
				if len(s.reported(problems.ReasonStorage)) == 0 {
					t.Errorf("nothing reported")
				}
			})
		})
	}
}

// A record whose write failed may exist. If it is dropped as soon as it is not needed, and
// another one is needed later, the group exceeds its size.
func TestRecordThatMayBeThereIsTakenUpAgain(t *testing.T) {
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprintf("applied=%t", applied), func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				s.size(web, 1)
				s.lead()
				pass(30 * time.Second)
				failed := false
				s.bucket.mu.Lock()
				s.bucket.fail = func(op string, _ fleet.InstanceID) (bool, error) {
					if op != "create" || failed {
						return true, nil
					}
					failed = true
					return applied, errStoreDown
				}
				s.bucket.mu.Unlock()
				for _, size := range []int{2, 1, 2} {
					s.size(web, size)
					pass(100 * time.Millisecond)
				}
				pass(2 * time.Second)
				s.expectRunning(web, 2)
				if n := len(s.bucket.all()); n != 2 {
					t.Errorf("%d records, want 2: %s", n, s.dump())
				}
				// One that stays unneeded is dropped after a listing.
				failed = false
				s.size(web, 3)
				pass(100 * time.Millisecond)
				s.size(web, 2)
				pass(10 * time.Minute)
				s.expectRunning(web, 2)
				s.size(web, 3)
				pass(30 * time.Second)
				s.expectRunning(web, 3)
			})
		})
	}
}

func TestProviderIDThatWasNotWrittenDownIsFoundAgain(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		failed := false
		s.bucket.fail = func(op string, _ fleet.InstanceID) (bool, error) {
			if op == "update-pending" && !failed {
				failed = true
				return false, errStoreDown
			}
			return true, nil
		}
		s.size(web, 1)
		s.lead()
		pass(5 * time.Minute)
		id := s.expectRunning(web, 1)[0]
		if r, _ := s.bucket.get(id); r.Provider.ID == "" || !failed {
			t.Errorf("record: %+v", r)
		}
		if n := len(s.world.VMs()); n != 1 {
			t.Errorf("%d VMs", n)
		}
	})
}

func TestCreateRateAndConcurrency(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
		s.adjust = func(c *reconcile.Config) {
			c.CreateRate = fair.Rate{PerSecond: 10, Burst: 20, Concurrency: 16}
		}
		s.size(web, 100)
		s.lead()
		began := time.Now()
		pass(30 * time.Second)
		s.expectRunning(web, 100)
		calls := s.world.Calls(fake.OpCreate)
		for i, c := range calls {
			under := 0
			for _, o := range calls {
				if !o.Start.After(c.Start) && o.End.After(c.Start) {
					under++
				}
			}
			if under > 16 {
				t.Fatalf("%d creates under way at one time", under)
			}
			if most := 20 + 10*c.Start.Sub(began).Seconds() + 1; float64(i+1) > most {
				t.Fatalf("%d creates within %v", i+1, c.Start.Sub(began))
			}
		}
	})
}

func TestLargeGroupKeepsNobodyWaiting(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
		s.size(db, 3)
		s.lead()
		pass(time.Minute)
		victim := s.expectRunning(db, 3)[0]
		s.size(web, 500)
		pass(1500 * time.Millisecond)
		s.world.Kill(victim)
		killed := time.Now()
		s.size(db, 4)
		pass(3 * time.Second)
		var after []fake.Call
		for _, c := range s.world.Calls(fake.OpCreate) {
			if spec, ok := s.world.Spec(c.Ref.ID); ok && spec.Tags[provider.TagGroup] == "db" && c.Start.After(killed) {
				after = append(after, c)
			}
		}
		if len(after) != 2 || after[0].Start.Sub(killed) > time.Second || after[1].Start.Sub(killed) > time.Second {
			t.Errorf("the small group's creates: %v", after)
		}
		pass(2 * time.Minute)
		s.expectRunning(web, 500)
		s.expectRunning(db, 4)
	})
}

func TestChangeOfMindDropsWhatHasNotBegun(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
		s.size(web, 1000)
		s.lead()
		pass(500 * time.Millisecond)
		s.size(web, 16)
		pass(time.Minute)
		s.expectRunning(web, 16)
		if n := len(s.world.Calls(fake.OpCreate)); n != 16 {
			t.Errorf("%d creates, want the 16 that had begun", n)
		}
	})
}

func TestBuildFailureIsReportedAndLeavesNothing(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.build = func(i fleet.Instance) error {
			if i.Group == web.Name {
				return errors.New("args.image: no such key")
			}
			return nil
		}
		s.size(web, 1)
		s.size(db, 1)
		s.lead()
		pass(10 * time.Second)
		s.expectRunning(db, 1)
		if n := len(s.bucket.all()); n != 1 {
			t.Errorf("%d records, want 1", n)
		}
		if p := s.reported(problems.ReasonBuild); len(p) == 0 || p[0].Group != web {
			t.Errorf("problems: %v", p)
		}
		s.mu.Lock()
		s.build = nil
		s.mu.Unlock()
		pass(30 * time.Second)
		s.expectRunning(web, 1)
	})
}

func TestStoreAwayWhileScaling(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.size(web, 2)
		s.lead()
		pass(10 * time.Second)
		s.down(true)
		s.size(web, 6)
		pass(20 * time.Second)
		s.down(false)
		pass(time.Minute)
		s.expectRunning(web, 6)
		if n := len(s.world.VMs()); n != 6 {
			t.Errorf("%d VMs", n)
		}
		s.down(true)
		s.size(web, 1)
		pass(20 * time.Second)
		s.down(false)
		pass(2 * time.Minute)
		s.expectRunning(web, 1)
		if n := len(s.world.VMs()); n != 1 {
			t.Errorf("%d VMs", n)
		}
	})
}

func (s *shard) down(down bool) {
	s.bucket.mu.Lock()
	defer s.bucket.mu.Unlock()
	s.bucket.down = down
}

func TestCreateSlotIsFreeOnceTheProviderAnswered(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
		s.bucket.latency = time.Second
		s.adjust = func(c *reconcile.Config) { c.CreateRate.Concurrency = 1 }
		s.size(web, 3)
		s.lead()
		pass(3500 * time.Millisecond)
		if n := len(s.world.Calls(fake.OpCreate)); n != 3 {
			t.Errorf("%d creates, want one a second", n)
		}
	})
}

func TestReplacementsComeBeforeGrowth(t *testing.T) {
	bubble(t, fake.Config{CreateLatency: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
		s.adjust = func(c *reconcile.Config) { c.CreateRate.Concurrency = 1 }
		s.size(db, 2)
		s.lead()
		pass(time.Minute)
		victim := s.expectRunning(db, 2)[0]
		for n := range 20 {
			s.size(fleet.GroupKey{Tenant: "default", Name: fmt.Sprintf("group-%02d", n)}, 3)
		}
		pass(100 * time.Millisecond)
		killed := time.Now()
		s.world.Kill(victim)
		pass(1500 * time.Millisecond)
		lines := s.logged("replacement started")
		if len(lines) != 1 {
			t.Fatalf("the replacement waits behind the growth of others: %v %s", s.logged("create started"), s.dump())
		}
		if at, _ := time.Parse(time.RFC3339Nano, fmt.Sprint(lines[0]["create_called_at"])); at.Sub(killed) > time.Second {
			t.Errorf("the replacement came after %v", at.Sub(killed))
		}
	})
}
