package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
)

// missingGroup is the condition of a group whose record is missing.
const missingGroup = "GroupRecordMissing"

// elevenOf starts a shard in which a dynamic group has nine machines, and a static one, by an
// override, two instead of one.
func elevenOf(t *testing.T) (s *site, p *process, listing *objecttest.Listing) {
	t.Helper()
	s = newSite(t, with("GROUPS", `"default": { "web": { "template": "knd", "size": 1 } }`),
		replaced(`"report_interval": "1m"`, `"report_interval": "1h"`))
	listing = objecttest.NewListing(s.inner)
	s.store = objecttest.NewFaults(listing, nil)
	p = s.start(func(c *server.Config) { c.CacheDir = s.t.TempDir() })
	s.populate(p)
	p.awaitSize("web", 1)
	for _, req := range []*nstancev1.UpsertGroupRequest{
		{Key: "job", Template: ptr("knd"), Size: ptr(int32(9))}, {Key: "web", Size: ptr(int32(2))},
	} {
		if _, err := p.upsert(req); err != nil {
			t.Fatal(err)
		}
	}
	p.awaitSize("job", 9)
	p.awaitSize("web", 2)
	s.world.ForgetCalls()
	return s, p, listing
}

// TestAcknowledgedIsStored: a change to what a group has already, while its object is away unnoticed,
// is acknowledged only with the object in the store.
func TestAcknowledgedIsStored(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, _ := elevenOf(t)
		machines := s.living()
		object := groupAt("default", "job")
		for _, size := range []int32{9, 9, 10} {
			s.remove(object)
			if got, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "job", Size: ptr(size)}); err != nil || got.GetSize() != size {
				t.Fatalf("size %d: %v, %v", size, got, err)
			}
			if text := s.get(object); !strings.Contains(text, fmt.Sprintf(`"size":%d`, size)) {
				t.Errorf("size %d was acknowledged, stored is %s", size, text)
			}
		}
		p.awaitSize("job", 10)
		for _, id := range machines {
			if !slices.Contains(s.living(), id) {
				t.Errorf("%s is gone", id)
			}
		}
	})
}

// idle waits until the groups have been reread, and gives clients new certificates afterwards.
func (p *process) idle() {
	time.Sleep(70 * time.Minute)
	p.look = sync.Once{}
}

// keptAll fails unless exactly these machines live and no delete was attempted.
func (s *site) keptAll(what string, machines []fleet.InstanceID) {
	s.t.Helper()
	if now := s.living(); !slices.Equal(now, machines) || len(s.world.Calls(fake.OpDelete)) > 0 {
		s.t.Fatalf("%s: %d machines live of %d, deletes: %v", what, len(now), len(machines), s.world.Calls(fake.OpDelete))
	}
	for _, r := range s.records() {
		if !r.Phase.Active() {
			s.t.Fatalf("%s: instance %s is %s (%s)", what, r.ID, r.Phase, r.Reason)
		}
	}
}

func (s *site) remove(key string) {
	s.t.Helper()
	if err := s.inner.Delete(context.Background(), key); err != nil {
		s.t.Fatal(err)
	}
}

// TestListingLacksGroups: a listing that omits keys, of any prefix, costs no machine, in a
// running term and at a takeover, with and without a cache.
func TestListingLacksGroups(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, listing := elevenOf(t)
		machines := s.living()
		listing.Hide(func(key string) bool { return strings.HasPrefix(key, "groups/") })
		p.idle() // the groups are listed every hour
		s.keptAll("in a running term", machines)
		if g := s.mustGroup(p, "job"); condition(g, missingGroup) != nil || g.GetSize() != 9 {
			t.Errorf("job is %v", g)
		}
		listing.Hide(func(key string) bool {
			return strings.HasPrefix(key, "groups/") || strings.HasPrefix(key, "instance/") && len(key)%2 == 0
		})
		p.ends()
		q := s.successor() // its cache is empty
		q.idle()
		s.keptAll("at a takeover", machines)
		if g := s.mustGroup(q, "job"); condition(g, missingGroup) != nil || g.GetSize() != 9 {
			t.Errorf("job is %v", g)
		}
	})
}

// TestListingLacksAGroupThatDrains: a group whose instances are all leaving, and that a listing
// omits, is not missing.
func TestListingLacksAGroupThatDrains(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, listing := elevenOf(t)
		s.replace(`"default_drain_timeout": "0s"`, `"default_drain_timeout": "1h"`)
		p.refreshes(updated)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "job", Size: ptr(int32(0))}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("job", 0)
		listing.Hide(func(key string) bool { return strings.HasPrefix(key, "groups/") })
		p.ends()
		q := s.successor() // its cache is empty
		if g := s.mustGroup(q, "job"); condition(g, missingGroup) != nil || g.GetSize() != 0 {
			t.Errorf("job is %v", g)
		}
	})
}

// TestListingLacksRecords: at a takeover without a cache, records that are not listed are found
// through their machines.
func TestListingLacksRecords(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, listing := elevenOf(t)
		machines := s.living()
		hidden := 0
		listing.Hide(func(key string) bool {
			if !strings.HasPrefix(key, "instance/") {
				return false
			}
			hidden++
			return true
		})
		p.ends()
		s.successor()
		time.Sleep(10 * time.Minute)
		s.keptAll("without any record listed", machines)
		if hidden == 0 || len(s.world.Calls(fake.OpCreate)) > 0 {
			t.Errorf("%d records hidden, created: %v", hidden, s.world.Calls(fake.OpCreate))
		}
	})
}

// TestLateListing: a listing that is 20 s stale, a change, and a failover to a server with the
// earlier state cached.
func TestLateListing(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, listing := elevenOf(t)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "job", Size: ptr(int32(1))}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("job", 1)
		q := s.start(func(c *server.Config) { c.ID = "b" }) // it reads the current groups
		eventually(t, "it follows", func() error {
			if q.log.count("serving") == 0 {
				return errors.New("not yet")
			}
			return nil
		})
		time.Sleep(time.Minute)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "job", Size: ptr(int32(9))}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("job", 9)
		s.world.ForgetCalls()
		alive := func() (ids []fleet.InstanceID) {
			for _, r := range s.records() {
				if r.Phase == fleet.Running {
					ids = append(ids, r.ID)
				}
			}
			return ids
		}
		machines := alive()
		listing.Lag(20 * time.Second)
		p.ends()
		q.takesAgents()
		time.Sleep(10 * time.Minute)
		if now := alive(); !slices.Equal(now, machines) || len(s.world.Calls(fake.OpDelete)) > 0 {
			t.Errorf("%v run, were %v; deletes %v", now, machines, s.world.Calls(fake.OpDelete))
		}
	})
}

// lost are the ways in which groups lose their records externally.
func lost() map[string]func(*site) {
	return map[string]func(*site){
		"objects removed": func(s *site) { s.remove(webAt); s.remove(groupAt("default", "job")) },
		"older objects": func(s *site) {
			s.put(webAt, `{ "epoch": 1, "rev": 1, "writer": "a", "size": 1 }`)
			s.put(groupAt("default", "job"), `{ "epoch": 1, "rev": 1, "writer": "a", "template": "knd", "size": 1 }`)
		},
	}
}

// TestGroupRecordsLost: a group whose record was removed externally is held in its last known
// state and reported, by the leader that knows it and by one that does not, until a call
// resolves it.
func TestGroupRecordsLost(t *testing.T) {
	for name, lose := range lost() {
		for _, cold := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", cold ", cold), simulation(func(t *testing.T) {
				s, p, _ := elevenOf(t)
				machines := s.living()
				if cold {
					p.ends()
				}
				lose(s)
				if cold {
					p = s.successor()
					time.Sleep(3 * time.Minute) // it reads them as it takes over
				} else {
					p.idle()
				}
				s.keptAll("in the term", machines)
				p.watchErrors("default").next("it is told", func(e *nstancev1.WatchErrorsResponse) bool {
					return e.GetReason() == missingGroup && e.GetGroup() == "job"
				})
				for _, key := range []string{"job", "web"} {
					if g := s.mustGroup(p, key); condition(g, missingGroup) == nil {
						t.Errorf("%s is %v", key, g)
					}
				}
				p.ends()
				p = s.successorNamed("c") // without a cache
				time.Sleep(3 * time.Minute)
				s.keptAll("after another takeover", machines)
				for key, size := range map[string]int32{"job": 9, "web": 2} {
					if g := s.mustGroup(p, key); condition(g, missingGroup) == nil || g.GetSize() != size {
						t.Errorf("%s is %v", key, g)
					}
				}
				s.endHold(p, cold && name == "objects removed")
			}))
		}
	}
}

// endHold ends the holds of the groups in each possible way.
func (s *site) endHold(p *process, unknown bool) {
	s.t.Helper()
	reset := func(key string) error {
		_, err := p.operator("default").ResetGroup(within(s.t), &nstancev1.ResetGroupRequest{Key: key})
		return err
	}
	ended := func(key string, size int32) {
		s.t.Helper()
		if g := s.mustGroup(p, key); condition(g, missingGroup) != nil || g.GetSize() != size {
			s.t.Errorf("%s is %v", key, g)
		}
	}
	if unknown {
		refused(s.t, reset("job"), codes.FailedPrecondition, "create")
		s.define(p)
	} else if err := reset("job"); err != nil {
		s.t.Fatal(err)
	}
	ended("job", 9)
	time.Sleep(time.Minute)
	if n := len(s.belonging("default", "job")); n != 9 {
		s.t.Errorf("%d of job live", n)
	}
	if _, err := p.operator("default").DeleteGroup(within(s.t), &nstancev1.DeleteGroupRequest{Key: "job"}); err != nil {
		s.t.Fatal(err)
	}
	s.awaitEmpty("default", "job")
	if err := reset("web"); err != nil {
		s.t.Fatal(err)
	}
	ended("web", 1)
	p.awaitSize("web", 1)
}

// TestHeldGroupIsDeleted: deleting a group of which only its instances are known deletes these.
func TestHeldGroupIsDeleted(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, _ := elevenOf(t)
		p.ends()
		s.remove(groupAt("default", "job"))
		p = s.successor()
		time.Sleep(time.Minute)
		if _, err := p.operator("default").DeleteGroup(within(t), &nstancev1.DeleteGroupRequest{Key: "job"}); err != nil {
			t.Fatal(err)
		}
		s.awaitEmpty("default", "job")
		eventually(t, "it is forgotten", func() error { return s.forgotten("default", "job") })
	})
}

// TestHeldGroupWithoutMachines: a group without machines is held, too, by the leader that knows it.
func TestHeldGroupWithoutMachines(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, _ := elevenOf(t)
		p.set(&nstancev1.UpsertGroupRequest{Key: "idle", Template: ptr("knd"), Size: ptr(int32(0))})
		s.remove(groupAt("default", "idle"))
		p.idle()
		if g := s.mustGroup(p, "idle"); condition(g, missingGroup) == nil || g.GetTemplate() != "knd" || g.GetSize() != 0 {
			t.Errorf("idle is %v", g)
		}
	})
}

// TestHeldGroupIsKeptAtSize: a dead machine of a held group is replaced, with the last known
// definition.
func TestHeldGroupIsKeptAtSize(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, _ := elevenOf(t)
		s.remove(groupAt("default", "job"))
		p.idle()
		s.world.Kill(s.belonging("default", "job")[0])
		eventually(t, "it is replaced", func() error {
			if n := len(s.belonging("default", "job")); n != 9 {
				return fmt.Errorf("%d live", n)
			}
			return nil
		})
		if g := s.mustGroup(p, "job"); condition(g, missingGroup) == nil {
			t.Errorf("job is %v", g)
		}
	})
}

// TestRemovalByConfigSurvivesCrashes: a static group that a refresh removes is emptied, even
// if the leader crashes at any of the writes.
func TestRemovalByConfigSurvivesCrashes(t *testing.T) {
	for n := range 6 {
		t.Run(fmt.Sprint("write ", n), simulation(func(t *testing.T) {
			s, p := running(t, with("GROUPS", `"default": { "web": { "template": "knd", "size": 2 }, "gone": { "template": "knd", "size": 3 } }`))
			p.awaitSize("gone", 3)
			time.Sleep(2 * time.Minute)
			s.config["GROUPS"] = `"default": { "web": { "template": "knd", "size": 2 } }`
			s.putConfig(shardID)
			writes := 0
			s.store.Set(func(r objecttest.Request) objecttest.Outcome {
				if r.Verb == object.VerbPut && !strings.HasPrefix(r.Key, "leader/") {
					if writes++; writes > n {
						return objecttest.Outcome{Fault: objecttest.Hung}
					}
				}
				return objecttest.Outcome{}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, _ = p.operator("default").RefreshConfig(ctx, &nstancev1.RefreshConfigRequest{AcceptRemovals: []string{"default/gone"}})
			cancel()
			p.ends()
			s.store.Set(nil)
			q := s.successor()
			q.awaitSize("web", 2)
			if _, err := q.refresh("default/gone"); err != nil { // as a caller without a reply would
				t.Fatal(err)
			}
			s.awaitEmpty("default", "gone")
			eventually(t, "it is forgotten", func() error { return s.forgotten("default", "gone") })
		}))
	}
}
