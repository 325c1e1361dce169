package server_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/leader"
	"github.com/nstance/nstance/pkg/server/operators"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// failures returns the types and subjects of an error's failed preconditions.
func failures(err error) (all []string) {
	for _, f := range rpc.Failures(err) {
		all = append(all, f.Type+" "+f.Subject)
	}
	return all
}

// twoGroups are web and db, with two machines each, and idle, with none.
const twoGroups = `"default": { "web": { "template": "knd", "size": 2 }, "db": { "template": "knd", "size": 2 },
	"idle": { "template": "knd", "size": 0 } }`

func runningTwo(t *testing.T, edits ...func(*site)) (*site, *process) {
	t.Helper()
	s, p := running(t, append([]func(*site){with("GROUPS", twoGroups)}, edits...)...)
	p.awaitSize("db", 2)
	return s, p
}

func (s *site) groupsBecome(groups string) {
	s.config["GROUPS"] = groups
	s.putConfig(shardID)
}

// TestRefreshNeedsRemovalsAccepted: a config that removes groups with instances is refused with
// their names, and nothing changes, until a refresh names all of them.
func TestRefreshNeedsRemovalsAccepted(t *testing.T) {
	for name, c := range map[string]struct {
		groups string
		want   []string
	}{
		"a group is gone": {`"default": { "web": { "template": "knd", "size": 2 } }`, []string{"GROUP_REMOVED default/db"}},
		"all are renamed": {
			`"default": { "www": { "template": "knd", "size": 2 }, "sql": { "template": "knd", "size": 2 } }`,
			[]string{"GROUP_REMOVED default/db", "GROUP_REMOVED default/web"},
		},
		"a size drops to 0": {
			`"default": { "web": { "template": "knd", "size": 0 }, "db": { "template": "knd", "size": 1 } }`, []string{"GROUP_EMPTIED default/web"},
		},
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := runningTwo(t)
			machines, accepted := s.living(), s.accepted()
			s.world.ForgetCalls()
			s.groupsBecome(c.groups)
			var names []string
			for _, w := range c.want {
				names = append(names, strings.Fields(w)[1])
			}
			for _, some := range [][]string{nil, names[1:], {"default/other"}} {
				_, err := p.refresh(some...)
				refused(t, err, codes.FailedPrecondition, names[0], "deletes 2 instances")
				if have := failures(err); !slices.Contains(have, c.want[0]) || len(some) == 0 && !slices.Equal(have, c.want) {
					t.Errorf("failures %q, want %q", have, c.want)
				}
			}
			time.Sleep(time.Minute)
			s.keptAll("after the refresh", machines)
			if s.accepted() != accepted {
				t.Error("it was kept as accepted")
			}
			p.refreshes(updated, names...)
			p.refreshes(unchanged, names...) // as after a lost reply
			for _, name := range names {
				s.awaitEmpty("default", strings.TrimPrefix(name, "default/"))
			}
			if st := p.configStatus(); st.GetRunningApplied() || len(st.GetAwaitsConfirmation()) > 0 {
				t.Errorf("status: %v", st)
			}
		}))
	}
}

// TestRefreshNeedsNoWord: a config that removes no instance needs no confirmation.
func TestRefreshNeedsNoWord(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := runningTwo(t)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "db", Size: ptr(int32(2)), Vars: ofColour("blue")}); err != nil {
			t.Fatal(err)
		}
		machines := s.living()
		s.world.ForgetCalls()
		s.groupsBecome(`"default": { "web": { "template": "knd", "size": 3 }, "more": { "template": "knd", "size": 1 } }`)
		p.refreshes(updated) // idle has none, db is kept by its record
		p.awaitSize("web", 3)
		p.awaitSize("more", 1)
		p.awaitSize("db", 2)
		for _, id := range machines {
			if !slices.Contains(s.living(), id) {
				t.Errorf("%s is gone", id)
			}
		}
	})
}

// TestRefreshAcceptedOfWhatStays: accepting a removal that the config does not make is refused
// with its name; an invalid group name is an invalid argument.
func TestRefreshAcceptedOfWhatStays(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := runningTwo(t)
		for range 2 { // the running text, and another one
			_, err := p.refresh("default/web")
			refused(t, err, codes.FailedPrecondition, "default/web", "keeps it")
			if have := failures(err); !slices.Equal(have, []string{rpc.GroupKept + " default/web"}) {
				t.Errorf("failures %q", have)
			}
			s.replace(`"db": { "template": "knd", "size": 2 }`, `"db": { "template": "knd", "size": 3 }`)
		}
		for _, name := range []string{"web", "", "default/", "/web", "default/web/x", "Default/web"} {
			_, err := p.refresh("default/gone", name)
			refused(t, err, codes.InvalidArgument)
			if have := fields(err); !slices.Equal(have, []string{"accept_removals[1]"}) {
				t.Errorf("%q: violations of %q", name, have)
			}
		}
		_, err := p.refresh(make([]string, operators.MaxAcceptedRemovals+1)...)
		refused(t, err, codes.InvalidArgument, "accept_removals")
		p.refreshes(updated, "default/gone")
	})
}

// TestRefreshOfATenantNeedsItsGroups: a removed tenant takes its groups with it, including
// dynamic ones.
func TestRefreshOfATenantNeedsItsGroups(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, with("GROUPS",
			`"default": { "web": { "template": "knd", "size": 2 } }, "prod": { "api": { "template": "knd", "size": 1 } }`))
		req := &nstancev1.UpsertGroupRequest{Key: "batch", Template: ptr("knd"), Size: ptr(int32(1)), Create: true}
		if _, err := p.operator("prod").UpsertGroup(within(t), req); err != nil {
			t.Fatal(err)
		}
		eventually(t, "tenant prod has two", func() error {
			if n := len(s.living()); n != 4 {
				return fmt.Errorf("%d live", n)
			}
			return nil
		})
		machines := s.living()
		s.world.ForgetCalls()
		s.config["GROUPS"] = `"default": { "web": { "template": "knd", "size": 2 } }`
		s.put(configAt, strings.Replace(s.text(), `"tenants": { "prod": {} },`, ``, 1))
		_, err := p.refresh()
		refused(t, err, codes.FailedPrecondition)
		if have := failures(err); !slices.Equal(have, []string{"GROUP_REMOVED prod/api", "GROUP_REMOVED prod/batch"}) {
			t.Errorf("failures %q", have)
		}
		_, err = p.refresh("prod/api")
		refused(t, err, codes.FailedPrecondition, "prod/batch")
		s.keptAll("after the refresh", machines)
		p.ends()
		q := s.successor()
		time.Sleep(time.Minute)
		s.keptAll("after the refresh", machines)
		q.refreshes(updated, "prod/api", "prod/batch")
		s.awaitEmpty("prod", "api")
		s.awaitEmpty("prod", "batch")
	})
}

// TestTakeoverAcceptsNoRemoval: a standby and a restarted server run the last accepted config,
// and report what they wait for, until a refresh names it.
func TestTakeoverAcceptsNoRemoval(t *testing.T) {
	for name, edit := range map[string]struct {
		groups string
		pairs  []string // of the rest of the text
		names  []string
	}{
		"renamed": {
			groups: `"default": { "www": { "template": "knd", "size": 2 }, "db": { "template": "knd", "size": 2 } }`, names: []string{"default/web"},
		},
		"emptied": {
			groups: `"default": { "web": { "template": "knd", "size": 0 }, "db": { "template": "knd", "size": 2 } }`, names: []string{"default/web"},
		},
		"no group is left": {groups: ``, names: []string{"default/db", "default/web"}},
		"and a field that needs a restart": {
			groups: `"default": { "db": { "template": "knd", "size": 2 } }`, pairs: []string{`"zone": "z"`, `"zone": "elsewhere"`},
			names: []string{"default/web"},
		},
	} {
		for how, next := range map[string]func(s *site, p *process) *process{
			"standby": func(s *site, p *process) *process {
				q := s.start(named("b"))
				q.awaitPeer()
				p.ends()
				q.awaitLeading()
				q.takesAgents()
				return q
			},
			"restart": func(s *site, p *process) *process { p.ends(); return s.successor() },
		} {
			t.Run(name+"/"+how, simulation(func(t *testing.T) {
				s, p := runningTwo(t)
				machines, accepted := s.living(), s.accepted()
				s.world.ForgetCalls()
				s.config["GROUPS"] = edit.groups
				s.put(configAt, strings.NewReplacer(edit.pairs...).Replace(s.text()))
				q := next(s, p)
				time.Sleep(time.Minute)
				s.keptAll("after the refresh", machines)
				if s.accepted() != accepted {
					t.Error("it was kept as accepted")
				}
				q.awaitsConfirmation(edit.names...)
				if resp := q.refreshes(updated, edit.names...); (len(edit.pairs) > 0) != (len(resp.GetRestartRequired()) > 0) {
					t.Errorf("answered %v", resp)
				}
				for _, name := range edit.names {
					s.awaitEmpty("default", strings.TrimPrefix(name, "default/"))
				}
				if st := q.configStatus(); st.GetRunningApplied() || len(st.GetAwaitsConfirmation()) > 0 {
					t.Errorf("status: %v", st)
				}
				q.ends() // the next one runs what was accepted
				r := s.successorNamed("c")
				if st := r.configStatus(); st.GetRunningApplied() || len(st.GetRestartRequired()) > 0 {
					t.Errorf("status of the next: %v", st)
				}
			}))
		}
	}
}

// TestTakeoverThatSeesNoRecordsAcceptsNoRemoval: a server that starts without a cache, on a
// listing without any records, does not treat a group as empty, and neither does a refresh
// before the provider has listed the machines.
func TestTakeoverThatSeesNoRecordsAcceptsNoRemoval(t *testing.T) {
	for name, groups := range map[string]string{
		"removed": `"default": { "db": { "template": "knd", "size": 2 } }`,
		"emptied": `"default": { "web": { "template": "knd", "size": 0 }, "db": { "template": "knd", "size": 2 } }`,
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s := newSite(t, with("GROUPS", twoGroups))
			listing := objecttest.NewListing(s.inner)
			s.store = objecttest.NewFaults(listing, nil)
			p := s.start()
			s.populate(p)
			p.awaitSize("web", 2)
			p.awaitSize("db", 2)
			machines, accepted := s.living(), s.accepted()
			s.world.ForgetCalls()
			s.groupsBecome(groups)
			p.ends()
			listing.Hide(func(key string) bool { return strings.HasPrefix(key, "instance/") })
			s.world.FailNext(fake.OpList, 3, fake.Fault{Err: fake.ErrLost})
			q := s.successor()
			_, err := q.refresh()
			refused(t, err, codes.FailedPrecondition, "default/web", "not known yet")
			if st := q.configStatus(); !st.GetRunningApplied() || len(st.GetAwaitsConfirmation()) != 1 {
				t.Errorf("status: %v", st)
			}
			time.Sleep(2 * time.Minute) // the machines have been listed, and their records read by then
			s.keptAll("after the takeover", machines)
			if s.accepted() != accepted {
				t.Error("it was kept as accepted")
			}
			_, err = q.refresh()
			refused(t, err, codes.FailedPrecondition, "default/web", "deletes 2 instances")
			q.refreshes(updated, "default/web")
			s.awaitEmpty("default", "web")
		}))
	}
}

// awaitsConfirmation expects a server to report that config/ waits for these removals.
func (p *process) awaitsConfirmation(names ...string) {
	p.t.Helper()
	var have []string
	st := p.configStatus()
	for _, r := range st.GetAwaitsConfirmation() {
		have = append(have, r.GetTenant()+"/"+r.GetGroup())
		if r.GetInstances() != 2 || len(r.GetInstanceIds()) != 2 {
			p.t.Errorf("status of %v", r)
		}
	}
	if !slices.Equal(have, names) || !st.GetRunningApplied() || len(st.GetViolations()) > 0 {
		p.t.Errorf("status: %v, want %q", st, names)
	}
	p.watchErrors("default").next("it is told", func(e *nstancev1.WatchErrorsResponse) bool {
		for _, name := range names {
			if !strings.Contains(e.GetMessage(), "--accept-removal "+name) {
				return false
			}
		}
		return e.GetReason() == leader.ReasonAwaits && strings.Contains(e.GetMessage(), "config refresh --shard "+shardID)
	})
	if n := p.log.counting("problem", "reason", leader.ReasonAwaits); n != 1 {
		p.t.Errorf("logged %d times", n)
	}
}

// TestAwaitingEnds: the text is reread while it waits. Waiting ends when it is the running text
// again; when it removes nothing any more, it waits for a refresh only.
func TestAwaitingEnds(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, with("GROUPS", twoGroups))
		p := s.start(looking)
		s.populate(p)
		p.awaitSize("web", 2)
		p.awaitSize("db", 2)
		good := s.get(configAt)
		s.groupsBecome(`"default": { "web": { "template": "knd", "size": 2 } }`)
		_, err := p.refresh()
		refused(t, err, codes.FailedPrecondition)
		time.Sleep(time.Second) // many reads
		p.awaitsConfirmation("default/db")
		errs := p.watchErrors("default")
		over := func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == leader.ReasonAwaits && e.GetOver()
		}
		s.put(configAt, good)
		errs.next("it is over", over)
		p.refreshes(unchanged)

		s.groupsBecome(`"default": { "web": { "template": "knd", "size": 2 } }`)
		_, err = p.refresh()
		refused(t, err, codes.FailedPrecondition)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "db", Size: ptr(int32(3))}); err != nil {
			t.Fatal(err)
		}
		errs.next("db would live on", over)
		eventually(t, "it waits for a refresh", func() error {
			if st := p.configStatus(); !st.GetRunningApplied() || len(st.GetAwaitsConfirmation()) > 0 || len(st.GetViolations()) != 1 {
				return fmt.Errorf("status: %v", st)
			}
			return nil
		})
		p.refreshes(updated)
		p.awaitSize("db", 3)
	})
}

// TestTakeoverAcceptsTheRest: a takeover accepts a text that removes no instance, even if it
// drops a group, and the first text of a shard.
func TestTakeoverAcceptsTheRest(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := runningTwo(t)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "db", Vars: ofColour("blue")}); err != nil {
			t.Fatal(err)
		}
		p.ends()
		s.groupsBecome(`"default": { "web": { "template": "knd", "size": 3 }, "more": { "template": "knd", "size": 1 } }`)
		q := s.successor()
		q.awaitSize("web", 3)
		q.awaitSize("more", 1)
		q.awaitSize("db", 2)
		if st := q.configStatus(); st.GetRunningApplied() || s.accepted() != s.get(configAt) {
			t.Errorf("status: %v", st)
		}
	})
}

// TestCrashWhileARemovalIsAccepted: after a crash at any write, the next leader has all
// machines of the group, or none, as a refresh accepted.
func TestCrashWhileARemovalIsAccepted(t *testing.T) {
	for name, c := range map[string]struct {
		prefix string
		fault  objecttest.Fault
		goes   bool
	}{
		"before the groups": {"groups/", objecttest.Dropped, false},
		"after the groups":  {"groups/", objecttest.ReplyLost, false},
		"before the config": {"applied/", objecttest.Dropped, false},
		"after the config":  {"applied/", objecttest.ReplyLost, true},
		"before the answer": {"leader/", objecttest.Dropped, true},
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := runningTwo(t, with("MORE", `"request_timeout": "300ms",`))
			p.written()
			s.groupsBecome(`"default": { "web": { "template": "knd", "size": 2 } }`)
			var struck atomic.Bool
			s.store.Set(func(r objecttest.Request) objecttest.Outcome {
				if r.Verb != object.VerbPut {
					return objecttest.Outcome{}
				}
				switch hit := strings.HasPrefix(r.Key, c.prefix); {
				case hit && !struck.Swap(true):
					return objecttest.Outcome{Fault: c.fault}
				case struck.Load(): // after that, nothing is written
					return objecttest.Outcome{Fault: objecttest.Dropped}
				}
				return objecttest.Outcome{}
			})
			if c.prefix == "leader/" {
				time.Sleep(150 * time.Millisecond) // more than the fence window
			}
			_, _ = p.refresh("default/db")
			p.stop()
			<-p.done
			s.store.Set(nil)
			q := s.successor()
			time.Sleep(time.Minute)
			db, web := s.belonging("default", "db"), s.belonging("default", "web")
			went := s.accepted() == s.get(configAt)
			if len(web) != 2 || went && len(db) != 0 || !went && len(db) != 2 {
				t.Errorf("accepted %v, web has %v, db has %v", went, web, db)
			}
			if c.prefix == "applied/" && went != c.goes {
				t.Errorf("accepted %v, want %v", went, c.goes)
			}
			if !went {
				q.awaitsConfirmation("default/db")
				q.refreshes(updated, "default/db")
			}
			s.awaitEmpty("default", "db")
		}))
	}
}
