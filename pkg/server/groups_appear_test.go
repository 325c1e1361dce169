package server_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider/fake"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestOutdatedConfigAndALateListing: a leader that finds an outdated config as accepted, or none, takes no
// machine whose record its first listing lacked, whatever config/ says, with the group's record or without,
// and whether the provider can list its machines at first or not.
func TestOutdatedConfigAndALateListing(t *testing.T) {
	for text, groups := range map[string]string{"no size": webUnset, "size 0": webOfNone, "size 2": webOf(2), "size 4": webOf(4)} {
		for _, applied := range []string{"lost", "outdated", "as config/"} {
			for name, record := range map[string]func(*process){"no record": nil, "a tombstone": func(*process) {}, "another override": surge} {
				for lacks, hidden := range hiding() {
					for _, fails := range []int{0, 3}[:1+len(lacks)%2] { // of the provider's lists
						t.Run(fmt.Sprintf("%s, applied %s, %s, lacks %s, %d lists fail", text, applied, name, lacks, fails), simulation(func(t *testing.T) {
							s, p, listing, outdated := grown(t, record)
							machines := s.living()
							listing.Hide(keysWith(hidden(machines)))
							p.ends()
							s.groupsBecome(groups)
							s.finds(applied, outdated)
							s.world.FailNext(fake.OpList, fails, fake.Fault{Err: fake.ErrLost})
							q := s.successor() // its cache is empty
							time.Sleep(9 * time.Second)
							if fails == 0 && !strings.Contains(q.log.String(), missingGroup) {
								t.Error("it is not told at once")
							}
							time.Sleep(10 * time.Minute)
							s.keepsWeb(q, machines)
							q.set(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1))})
							q.awaitSize("web", 1)
						}))
					}
				}
			}
		}
	}
}

// finds loses the accepted config, or puts an outdated one, or that of config/, in its place.
func (s *site) finds(applied, outdated string) {
	switch applied {
	case "lost":
		s.remove(appliedAt)
	case "outdated":
		s.put(appliedAt, outdated)
	default:
		s.put(appliedAt, s.get(configAt))
	}
}

// TestRefreshBeforeTheList: a refresh to another outdated config, before the machines are listed, takes none.
func TestRefreshBeforeTheList(t *testing.T) {
	for _, applied := range []string{"lost", "outdated", "as config/"} {
		t.Run(applied, simulation(func(t *testing.T) {
			s, p, listing, outdated := grown(t, surge)
			machines := s.living()
			listing.Hide(keysWith(hiding()["all"](machines)))
			p.ends()
			s.groupsBecome(webOf(2))
			s.finds(applied, outdated)
			s.world.FailNext(fake.OpList, 6, fake.Fault{Err: fake.ErrLost})
			q := s.successor() // its cache is empty
			s.groupsBecome(`"default": { "web": { "template": "knd", "size": 2 }, "more": { "template": "knd", "size": 0 } }`)
			q.refreshes(updated)
			time.Sleep(10 * time.Minute)
			s.keepsWeb(q, machines)
		}))
	}
}

// TestDeadMachineIsFoundLate: the record of a dead machine that is found after its replacement was made holds
// nothing.
func TestDeadMachineIsFoundLate(t *testing.T) {
	const more = `"default": { "web": { "template": "knd", "size": 3 }, "more": { "template": "knd", "size": 0 } }`
	for _, groups := range []string{webOf(3), more} {
		t.Run(groups, simulation(func(t *testing.T) {
			s, p, listing := listed(t, webOf(3))
			p.awaitSize("web", 3)
			time.Sleep(10 * time.Minute)
			dead := s.living()[0]
			listing.Hide(keysWith([]string{dead.StorageKey()}))
			p.ends()
			s.world.Vanish(dead)
			s.groupsBecome(groups)
			q := s.successor() // its cache is empty
			q.awaitSize("web", 3)
			machines := s.living()
			time.Sleep(10 * time.Minute)
			listing.Hide(nil)
			time.Sleep(10 * time.Minute)
			if now := s.living(); !slices.Equal(now, machines) {
				t.Errorf("%v live, were %v", now, machines)
			}
			if g := s.mustGroup(q, "web"); condition(g, missingGroup) != nil || g.GetSize() != 3 {
				t.Errorf("web is %v", g)
			}
		}))
	}
}

// grown starts a shard whose config was changed to six machines of web, from two if it is to leave a record,
// and returns the config that was accepted before. Three of its instances have died.
func grown(t *testing.T, record func(*process)) (s *site, p *process, listing *objecttest.Listing, outdated string) {
	t.Helper()
	before := webOf(2) // a size that changes leaves a record
	if record == nil {
		before = ``
	}
	s, p, listing = listed(t, before)
	outdated = s.get(appliedAt)
	s.groupsBecome(webOfSix)
	p.refreshes(updated)
	p.awaitSize("web", 6)
	if record != nil {
		record(p)
	}
	for _, id := range s.living()[:3] {
		s.world.Kill(id)
	}
	time.Sleep(10 * time.Minute)
	s.world.ForgetCalls()
	return s, p, listing, outdated
}

// hiding are the records that a listing may lack, by parts of their keys.
func hiding() map[string]func(ids []fleet.InstanceID) []string {
	records := func(ids []fleet.InstanceID) (parts []string) {
		for _, id := range ids {
			parts = append(parts, id.StorageKey())
		}
		return parts
	}
	return map[string]func(ids []fleet.InstanceID) []string{
		"all": records, "one": func(ids []fleet.InstanceID) []string { return records(ids)[:1] },
		"all and the group": func(ids []fleet.InstanceID) []string { return append(records(ids), "groups/") },
	}
}

// keysWith reports whether a key has one of these parts.
func keysWith(parts []string) func(key string) bool {
	return func(key string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(key, part) })
	}
}

// listed starts a shard, calm, whose listings can be incomplete.
func listed(t *testing.T, groups string) (*site, *process, *objecttest.Listing) {
	t.Helper()
	s := newSite(t, with("GROUPS", groups), calm)
	listing := objecttest.NewListing(s.inner)
	s.store = objecttest.NewFaults(listing, nil)
	p := s.start()
	s.populate(p)
	return s, p, listing
}

// webOf is the group web with a size.
func webOf(size int) string {
	return fmt.Sprintf(`"default": { "web": { "template": "knd", "size": %d } }`, size)
}

// TestTakeoverAcceptsLess: a takeover accepts a smaller size, whatever the listing of the store lacks. Once the
// machines are known, the group's record says so, and the next takeover holds nothing.
func TestTakeoverAcceptsLess(t *testing.T) {
	for name, c := range map[string]struct {
		hidden func(ids []fleet.InstanceID) []string
		fails  int           // of the provider's lists
		within time.Duration // the record says it
	}{
		"all": {hidden: hiding()["all"], within: time.Second}, "one": {hidden: hiding()["one"], within: time.Second},
		"all and the group": {hidden: hiding()["all and the group"], within: time.Second},
		"nothing":           {hidden: func([]fleet.InstanceID) []string { return nil }, fails: 3, within: time.Minute},
	} {
		t.Run("lacks "+name, simulation(func(t *testing.T) {
			s, p, listing, _ := grown(t, surge)
			listing.Hide(keysWith(c.hidden(s.living())))
			p.ends()
			s.groupsBecome(webOf(2))
			s.world.FailNext(fake.OpList, c.fails, fake.Fault{Err: fake.ErrLost})
			q := s.successor()
			time.Sleep(c.within)
			if text := s.get(webAt); !strings.Contains(text, `"config_size":2`) {
				t.Errorf("the record is %s", text)
			}
			if st := q.configStatus(); st.GetRunningApplied() || s.accepted() != s.get(configAt) {
				t.Errorf("status: %v", st)
			}
			q.ends()
			r := s.successorNamed("c")
			r.awaitSize("web", 2)
			if g := s.mustGroup(r, "web"); condition(g, missingGroup) != nil {
				t.Errorf("web is %v", g)
			}
		}))
	}
}

// TestCrashAfterLessIsAccepted: a leader that accepted a smaller size at its takeover, and ends at once, has
// said so in the group's record first: the next one holds nothing.
func TestCrashAfterLessIsAccepted(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, _, _ := grown(t, surge)
		p.ends()
		s.groupsBecome(webOf(2))
		var accepted atomic.Bool
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			switch {
			case r.Verb != object.VerbPut:
			case r.Key == appliedAt:
				accepted.Store(true)
			case accepted.Load():
				return objecttest.Outcome{Fault: objecttest.Dropped}
			}
			return objecttest.Outcome{}
		})
		q := s.start(named("b"))
		eventually(t, "the config is accepted", func() error {
			if !accepted.Load() {
				return errors.New("not yet")
			}
			return nil
		})
		q.ends()
		s.store.Set(nil)
		r := s.successorNamed("c")
		r.awaitSize("web", 2)
		if g := s.mustGroup(r, "web"); condition(g, missingGroup) != nil {
			t.Errorf("web is %v", g)
		}
	})
}

// TestTakeoverWithoutLateRecords: what a takeover itself finds is not late. It reads no group's record again.
func TestTakeoverWithoutLateRecords(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, listing, _ := grown(t, surge)
		listing.Hide(keysWith(hiding()["all"](s.living())))
		q := s.standby() // it knows no instance
		listing.Hide(nil)
		var reads atomic.Int64
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbGet && r.Key == webAt {
				reads.Add(1)
			}
			return objecttest.Outcome{}
		})
		p.ends()
		q.takesAgents()
		time.Sleep(time.Minute)
		if n := reads.Load(); n != 0 {
			t.Errorf("the record was read %d times", n)
		}
	})
}
