package server_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// runs returns the IDs of the running instances.
func (s *site) runs() (ids []fleet.InstanceID) {
	for _, r := range s.records() {
		if r.Phase == fleet.Running {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// standby starts a server b and waits until it has read the current groups.
func (s *site) standby() *process {
	s.t.Helper()
	q := s.start(named("b"))
	eventually(s.t, "it follows", func() error {
		if q.log.count("serving") == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	time.Sleep(time.Minute)
	return q
}

// TestLateListingOfReset: a stale listing with the override of a reset static group, and a
// failover to a server that has it cached, cost no machine.
func TestLateListingOfReset(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, listing := elevenOf(t)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(0))}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("web", 0)
		q := s.standby()
		if _, err := p.operator("default").ResetGroup(within(t), &nstancev1.ResetGroupRequest{Key: "web"}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("web", 1)
		s.world.ForgetCalls()
		machines := s.runs()
		listing.Lag(20 * time.Second)
		p.ends()
		q.takesAgents()
		time.Sleep(10 * time.Minute)
		if now := s.runs(); !slices.Equal(now, machines) || len(s.world.Calls(fake.OpDelete)) > 0 {
			t.Errorf("%v run, were %v; deletes %v", now, machines, s.world.Calls(fake.OpDelete))
		}
	})
}

// TestOverrideLostAndListingLacks: an override that was removed externally is detected by the
// revision of an instance whose record is found only after the takeover.
func TestOverrideLostAndListingLacks(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, listing := elevenOf(t)
		machines := s.living()
		later := map[string]bool{}
		for _, r := range s.records() {
			if r.Group == "web" && r.GroupRevision > 0 {
				later[r.ID.StorageKey()] = true
			}
		}
		if len(later) != 1 {
			t.Fatal(later)
		}
		listing.Hide(func(key string) bool {
			for k := range later {
				if strings.Contains(key, k) {
					return true
				}
			}
			return false
		})
		p.ends()
		s.remove(webAt)
		q := s.successor()
		time.Sleep(10 * time.Minute)
		s.keptAll("after the takeover", machines)
		if g := s.mustGroup(q, "web"); condition(g, missingGroup) == nil || g.GetSize() != 2 {
			t.Errorf("web is %v", g)
		}
	})
}

// TestCachedOverrideLostAndListingLacks: a server that has an override cached takes over when
// the override was removed externally and no listing shows an instance. The override counts
// again once the instances are found.
func TestCachedOverrideLostAndListingLacks(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, listing := elevenOf(t)
		machines := s.living()
		listing.Hide(func(key string) bool { return strings.HasPrefix(key, "instance/") })
		q := s.standby()
		s.remove(webAt)
		p.ends()
		q.takesAgents()
		time.Sleep(10 * time.Minute)
		s.keptAll("after the takeover", machines)
		if g := s.mustGroup(q, "web"); condition(g, missingGroup) == nil || g.GetSize() != 2 {
			t.Errorf("web is %v", g)
		}
	})
}

// TestListingLacksAnOlderOverride: a listing without the override of a group whose machines were all
// made before it: the override is read by its key, and nothing is taken for lost.
func TestListingLacksAnOlderOverride(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, listing := listed(t, onlyWeb)
		p.awaitSize("web", 2)
		p.set(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(2))})
		s.groupsBecome(`"default": { "web": { "template": "knd", "size": 1 } }`)
		p.refreshes(updated)
		time.Sleep(time.Minute)
		machines := s.living()
		s.world.ForgetCalls()
		listing.Hide(func(key string) bool { return key == webAt })
		p.ends()
		q := s.successor() // its cache is empty
		time.Sleep(time.Minute)
		s.keptAll("after the takeover", machines)
		if g := s.mustGroup(q, "web"); condition(g, missingGroup) != nil || g.GetSize() != 2 {
			t.Errorf("web is %v", g)
		}
	})
}

// TestListingLacksAGroup: a listing without a dynamic group and its instances. The group is told as missing only
// if its record is gone when it is read by its key.
func TestListingLacksAGroup(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("lost %v", lost), simulation(func(t *testing.T) {
			s, p, listing := listed(t, onlyWeb)
			p.set(&nstancev1.UpsertGroupRequest{Key: "jobs", Template: ptr("knd"), Size: ptr(int32(2))})
			p.awaitSize("jobs", 2)
			machines := s.living()
			listing.Hide(keysWith([]string{"instance/", "jobs"}))
			p.ends()
			if lost {
				s.remove("groups/dev-1/default/jobs.json")
			}
			q := s.successor() // its cache is empty
			time.Sleep(10 * time.Minute)
			s.keptAll("after the takeover", machines)
			if told := strings.Contains(q.log.String(), missingGroup); told != lost {
				t.Errorf("told that a record is missing: %v\n%s", told, q.log)
			}
			if g := s.mustGroup(q, "jobs"); (condition(g, missingGroup) != nil) != lost || !lost && g.GetSize() != 2 {
				t.Errorf("jobs is %v", g)
			}
		}))
	}
}
