package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider/fake"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	webOfSix  = `"default": { "web": { "template": "knd", "size": 6 } }`
	webUnset  = `"default": { "web": { "template": "knd" } }`
	webOfNone = `"default": { "web": { "template": "knd", "size": 0 } }`
)

func runningSix(t *testing.T) (*site, *process) {
	t.Helper()
	s := newSite(t, with("GROUPS", webOfSix))
	p := s.start()
	s.populate(p)
	p.awaitSize("web", 6)
	s.world.ForgetCalls()
	return s, p
}

// TestSizeSetNoMore: a text without the size that it had costs no machine, by a refresh or at a
// takeover, until it is accepted; the text with the size again runs as before.
func TestSizeSetNoMore(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := runningSix(t)
		machines := s.living()
		s.groupsBecome(webUnset)
		_, err := p.refresh()
		refused(t, err, codes.FailedPrecondition, "default/web", "no size is set any more", "would be 1", "deletes 5 instances of these 6")
		if have := failures(err); !slices.Equal(have, []string{"GROUP_SIZE_UNSET default/web"}) {
			t.Errorf("failures %q", have)
		}
		p.ends()
		q := s.successor()
		time.Sleep(time.Minute)
		s.keptAll("after a takeover", machines)
		if r := q.configStatus().GetAwaitsConfirmation(); len(r) != 1 || !r[0].GetSizeUnset() || r[0].GetEmptied() || r[0].GetInstances() != 5 {
			t.Errorf("awaits %v", r)
		}
		s.groupsBecome(webOfSix)
		q.refreshes(updated)
		s.groupsBecome(webUnset)
		q.refreshes(updated, "default/web")
		q.refreshes(unchanged, "default/web") // as after a lost reply
		q.awaitSize("web", 1)
	})
}

// TestGroupThatShrinks: a size that the text sets needs no confirmation; one of half or less is in
// the log, in the answer and in the status, after a refresh and after a takeover.
func TestGroupThatShrinks(t *testing.T) {
	for name, switches := range map[string]func(s *site, p *process) *process{
		"by a refresh":  func(_ *site, p *process) *process { p.refreshes(updated); return p },
		"by a takeover": func(s *site, p *process) *process { p.ends(); return s.successor() },
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := runningSix(t)
			s.groupsBecome(strings.Replace(webOfSix, "6", "4", 1))
			p.refreshes(updated)
			if got := p.configStatus().GetShrunk(); len(got) > 0 {
				t.Errorf("by a third: %v", got)
			}
			p.awaitSize("web", 4)
			s.groupsBecome(strings.Replace(webOfSix, "6", "2", 1))
			p = switches(s, p)
			p.awaitSize("web", 2)
			got := p.configStatus().GetShrunk()
			if len(got) != 1 || got[0].GetGroup() != "web" || got[0].GetSizeBefore() != 4 || got[0].GetSize() != 2 {
				t.Errorf("by half: %v", got)
			}
			p.refreshes(unchanged)
			if got := p.configStatus().GetShrunk(); len(got) != 1 {
				t.Errorf("after a refresh that changed nothing: %v", got)
			}
			if n := p.log.counting("config makes a group smaller by half or more", "group", "default/web"); n != 1 {
				t.Errorf("logged %d times", n)
			}
		}))
	}
}

// TestNoAcceptedConfig: without the config that the shard had accepted, nothing shows what a text
// takes away, so a group that has more machines than the text sets is held until a call says
// otherwise.
func TestNoAcceptedConfig(t *testing.T) {
	for name, groups := range map[string]string{
		"size 0": webOfNone, "no size": webUnset, "a smaller size": strings.Replace(webOfSix, "6", "2", 1), "no group": ``,
	} {
		for how, lose := range map[string]func(*site){
			"removed": func(s *site) { s.remove(appliedAt) },
			"damaged": func(s *site) { s.put(appliedAt, "{") },
			"refused": func(s *site) { s.refuse(func(key string) bool { return key == appliedAt }) },
		} {
			t.Run(name+", "+how, simulation(func(t *testing.T) {
				s, p := runningSix(t)
				machines := s.living()
				p.ends()
				lose(s)
				s.groupsBecome(groups)
				q := s.successor() // its cache is empty
				time.Sleep(time.Minute)
				s.keptAll("after the takeover", machines)
				if g := s.mustGroup(q, "web"); condition(g, missingGroup) == nil || g.GetSize() != 6 {
					t.Errorf("web is %v", g)
				}
				s.store.Set(nil)
				time.Sleep(time.Minute)
				q.refreshes(unchanged)
				q.ends()
				q = s.successorNamed("c")
				time.Sleep(time.Minute)
				s.keptAll("after another takeover", machines)
				if groups == "" {
					return
				}
				q.resets("web")
				q.awaitSize("web", map[string]int32{"size 0": 0, "no size": 1, "a smaller size": 2}[name])
			}))
		}
	}
}

// surge gives a group a record that says nothing of its size.
func surge(p *process) { p.set(&nstancev1.UpsertGroupRequest{Key: "web", MaxSurge: ptr("2")}) }

// reset leaves a tombstone of a group's record.
func reset(p *process) {
	p.t.Helper()
	p.set(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(6))})
	p.resets("web")
}

// TestNoAcceptedConfigOfRecords: the same, if the group has a record that says nothing of its size.
func TestNoAcceptedConfigOfRecords(t *testing.T) {
	for name, record := range map[string]func(*process){"another override": surge, "a tombstone": reset} {
		for size, groups := range map[int32]string{0: webOfNone, 1: webUnset, 2: strings.Replace(webOfSix, "6", "2", 1)} {
			t.Run(fmt.Sprintf("%s, size %d", name, size), simulation(func(t *testing.T) {
				s, p := runningSix(t)
				record(p)
				machines := s.living()
				p.ends()
				s.remove(appliedAt)
				s.groupsBecome(groups)
				q := s.successor() // its cache is empty
				time.Sleep(time.Minute)
				s.keptAll("after the takeover", machines)
				if g := s.mustGroup(q, "web"); condition(g, missingGroup) == nil || g.GetSize() != 6 {
					t.Errorf("web is %v", g)
				}
				q.set(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(size)})
				q.awaitSize("web", size)
			}))
		}
	}
}

// TestNoAcceptedConfigAndABriefLeader: what holds a group is stored before the config that holds it is
// accepted. A leader that ends before it could store the first has not accepted the other, so that the
// next one finds what this one has found.
func TestNoAcceptedConfigAndABriefLeader(t *testing.T) {
	for name, record := range map[string]func(*process){"no record": func(*process) {}, "another override": surge, "a tombstone": reset} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := runningSix(t)
			record(p)
			machines := s.living()
			p.ends()
			s.remove(appliedAt)
			s.groupsBecome(webOfNone)
			s.store.Set(func(r objecttest.Request) objecttest.Outcome {
				if r.Verb == object.VerbPut && r.Key == webAt {
					return objecttest.Outcome{Fault: objecttest.Dropped}
				}
				return objecttest.Outcome{}
			})
			q := s.start(named("b"))
			time.Sleep(time.Minute)
			q.ends()
			s.store.Set(nil)
			r := s.successorNamed("c")
			time.Sleep(time.Minute)
			s.keptAll("after two takeovers", machines)
			if g := s.mustGroup(r, "web"); condition(g, missingGroup) == nil || g.GetSize() != 6 {
				t.Errorf("web is %v", g)
			}
		}))
	}
}

// TestNoAcceptedConfigOfATemplate: the same for a group of the API that has its template's size.
func TestNoAcceptedConfigOfATemplate(t *testing.T) {
	simulated(t, func(t *testing.T) {
		sized := func(s *site) string {
			return strings.Replace(s.text(), `"kind": "knd",`, `"kind": "knd", "size": 6,`, 1)
		}
		s := newSite(t, with("GROUPS", ``))
		s.put(configAt, sized(s))
		p := s.start()
		s.populate(p)
		p.set(&nstancev1.UpsertGroupRequest{Key: "job", Template: ptr("knd")})
		p.awaitSize("job", 6)
		machines := s.living()
		s.world.ForgetCalls()
		s.put(configAt, s.text())
		_, err := p.refresh()
		refused(t, err, codes.FailedPrecondition, "default/job", "no size is set any more")
		p.ends()
		s.remove(appliedAt)
		q := s.successor() // its cache is empty
		time.Sleep(time.Minute)
		s.keptAll("after the takeover", machines)
		if g := s.mustGroup(q, "job"); condition(g, missingGroup) == nil || g.GetSize() != 6 {
			t.Errorf("job is %v", g)
		}
	})
}

// TestOlderAppliedAndAnInvalidConfig: a leader that finds an older accepted config, with a smaller
// size, and nothing else to run, keeps all machines until a call says otherwise.
func TestOlderAppliedAndAnInvalidConfig(t *testing.T) {
	for name, record := range map[string]func(*process){
		"no record": func(*process) {}, "another override": surge, "a tombstone": func(p *process) { surge(p); p.resets("web") },
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s := newSite(t, with("GROUPS", strings.Replace(webOfSix, "6", "2", 1)), calm)
			p := s.start()
			s.populate(p)
			p.awaitSize("web", 2)
			older := s.get(appliedAt)
			record(p)
			s.groupsBecome(webOfSix)
			p.refreshes(updated)
			p.awaitSize("web", 6)
			machines := s.living()
			s.world.ForgetCalls()
			p.ends()
			s.put(appliedAt, older)
			s.put(configAt, "{")
			q := s.successor() // its cache is empty
			time.Sleep(10 * time.Minute)
			s.keptAll("after the takeover", machines)
			if g := s.mustGroup(q, "web"); condition(g, missingGroup) == nil || g.GetSize() != 6 {
				t.Errorf("web is %v", g)
			}
			q.resets("web")
			q.awaitSize("web", 2)
		}))
	}
}

// TestOlderAppliedWithoutTheGroup: the same, if the older one does not name the group at all, be all its
// machines new or not, and whatever config/ says of it.
func TestOlderAppliedWithoutTheGroup(t *testing.T) {
	older := map[string]func(s *site, p *process) string{
		"a new group": func(s *site, _ *process) string { return s.get(appliedAt) },
		"a group that was removed before": func(s *site, p *process) string {
			s.groupsBecome(webOfSix)
			p.refreshes(updated)
			p.awaitSize("web", 6)
			s.groupsBecome(``)
			p.refreshes(updated, "default/web")
			s.settled()
			return s.get(appliedAt)
		},
	}
	for name, groups := range map[string]string{
		"size 0": webOfNone, "no size": webUnset, "a smaller size": strings.Replace(webOfSix, "6", "2", 1), "no group": ``,
		"another definition": `"default": { "web": { "template": "knd", "size": 5, "vars": { "a": "b" } } }`,
	} {
		for before, copied := range older {
			for _, age := range []time.Duration{0, 10 * time.Minute} {
				t.Run(fmt.Sprintf("%s, then %s after %s", before, name, age), simulation(func(t *testing.T) {
					s := newSite(t, with("GROUPS", ``), calm)
					p := s.start()
					s.populate(p)
					text := copied(s, p)
					s.groupsBecome(webOfSix)
					p.refreshes(updated)
					p.awaitSize("web", 6)
					time.Sleep(age)
					machines := s.living()
					s.world.ForgetCalls()
					p.ends()
					s.put(appliedAt, text)
					s.groupsBecome(groups)
					q := s.successor() // its cache is empty
					time.Sleep(10 * time.Minute)
					s.keepsWeb(q, machines)
					if groups != "" {
						q.set(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1))})
						q.awaitSize("web", 1)
					}
				}))
			}
		}
	}
}

// keepsWeb checks that web is held with its six machines.
func (s *site) keepsWeb(p *process, machines []fleet.InstanceID) {
	s.t.Helper()
	if now := s.living(); !slices.Equal(now, machines) || len(s.world.Calls(fake.OpDelete)) > 0 {
		s.t.Fatalf("%d machines live of %d, deletes: %v", len(now), len(machines), s.world.Calls(fake.OpDelete))
	}
	if g := s.mustGroup(p, "web"); condition(g, missingGroup) == nil || g.GetSize() != 6 {
		s.t.Errorf("web is %v", g)
	}
}

// TestConfigThatWasNotAccepted: a size that a refresh could not store counts for nothing once the config
// is as before: an older accepted config takes no machine, and replacements hold no group.
func TestConfigThatWasNotAccepted(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, with("GROUPS", strings.Replace(webOfSix, "6", "2", 1)), calm)
		p := s.start()
		s.populate(p)
		older := s.get(appliedAt)
		surge(p)
		s.groupsBecome(webOfSix)
		p.refreshes(updated)
		p.awaitSize("web", 6)
		good := s.get(configAt)
		s.groupsBecome(strings.Replace(webOfSix, "6", "2", 1))
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && r.Key == appliedAt {
				return objecttest.Outcome{Fault: objecttest.Refused}
			}
			return objecttest.Outcome{}
		})
		if _, err := p.refresh(); err == nil {
			t.Fatal("accepted without applied/")
		}
		s.store.Set(nil)
		s.put(configAt, good)
		p.refreshes(unchanged)
		time.Sleep(5 * time.Minute)
		machines := s.living()
		s.world.ForgetCalls()
		p.ends()
		s.put(appliedAt, older)
		s.put(configAt, "{")
		q := s.successor() // its cache is empty
		time.Sleep(10 * time.Minute)
		s.keptAll("after the takeover", machines)
		if g := s.mustGroup(q, "web"); condition(g, missingGroup) == nil || g.GetSize() != 6 {
			t.Errorf("web is %v", g)
		}
	})
}

// set changes a group.
func (p *process) set(req *nstancev1.UpsertGroupRequest) {
	p.t.Helper()
	if _, err := p.upsert(req); err != nil {
		p.t.Fatal(err)
	}
}

// resets drops the overrides of a group.
func (p *process) resets(group string) {
	p.t.Helper()
	if _, err := p.operator("default").ResetGroup(within(p.t), &nstancev1.ResetGroupRequest{Key: group}); err != nil {
		p.t.Fatal(err)
	}
}

// TestUnsetSizeStays: accepting the removal of a group that never had a size, and stays, is refused
// as for any other group.
func TestUnsetSizeStays(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, with("GROUPS", `"default": { "web": { "template": "knd", "size": 2 }, "db": { "template": "knd" } }`))
		for range 2 { // the running text, and another one
			_, err := p.refresh("default/db")
			refused(t, err, codes.FailedPrecondition, "default/db", "keeps it")
			s.replace(`"web": { "template": "knd", "size": 2 }`, `"web": { "template": "knd", "size": 3 }`)
		}
	})
}

// TestSmallerSizeAtOnce: a shard that has just begun, and starts again with a smaller size, has that
// size.
func TestSmallerSizeAtOnce(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := runningSix(t)
		p.ends()
		s.groupsBecome(strings.Replace(webOfSix, "6", "4", 1))
		q := s.successor()
		q.awaitSize("web", 4)
		if g := s.mustGroup(q, "web"); condition(g, missingGroup) != nil {
			t.Errorf("web is %v", g)
		}
	})
}
