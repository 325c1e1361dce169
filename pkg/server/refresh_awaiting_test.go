package server_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// webAndBad are web with two machines, and bad, which never had one: its subnet is full.
const webAndBad = `"default": { "web": { "template": "knd", "size": 2 }, "bad": { "template": "big", "size": 2 } }`

func runningBad(t *testing.T) (*site, *process) {
	t.Helper()
	return running(t, with("GROUPS", webAndBad), func(s *site) { s.world.SetCapacity(map[string]int{"a": 100, "b": 0}) })
}

// removes stores the config with these groups listed as removed.
func (s *site) removes(names ...string) {
	s.replace(`"groups":`, `"removed": ["`+strings.Join(names, `", "`)+`"], "groups":`)
}

// TestAwaitedConfigWithoutMachines: a config that a takeover held for a group that never had a
// machine takes effect soon after the provider has been listed.
func TestAwaitedConfigWithoutMachines(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := runningBad(t)
		time.Sleep(time.Minute)
		s.groupsBecome(`"default": { "web": { "template": "knd", "size": 4 } }`)
		p.ends()
		q := s.successor()
		time.Sleep(time.Minute)
		q.awaitSize("web", 4)
		if st := q.configStatus(); st.GetRunningApplied() || len(st.GetAwaitsConfirmation()) > 0 || s.accepted() != s.get(configAt) {
			t.Errorf("status: %v", st)
		}
		if n := q.log.count("config refreshed"); n != 1 {
			t.Errorf("logged %d times that it took effect", n)
		}
	})
}

// TestOlderAppliedWhileAConfigAwaits: the sizes of a config that was never accepted explain no
// machine, so a leader that finds an older applied/, with a smaller group, keeps all machines.
func TestOlderAppliedWhileAConfigAwaits(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := runningTwo(t, calm)
		older := s.get(appliedAt)
		s.groupsBecome(`"default": { "web": { "template": "knd", "size": 2 }, "db": { "template": "knd", "size": 4 } }`)
		p.refreshes(updated)
		p.awaitSize("db", 4)
		time.Sleep(5 * time.Minute) // none is so new that it could be a replacement
		machines := s.living()
		s.world.ForgetCalls()
		s.put(appliedAt, older)
		s.groupsBecome(`"default": { "db": { "template": "knd", "size": 4 } }`)
		p.ends()
		q := s.successor()
		time.Sleep(10 * time.Minute)
		s.keptAll("by the next leader", machines)
		q.awaitsConfirmation("default/web")
	})
}

const onlyWeb = `"default": { "web": { "template": "knd", "size": 2 } }`

// calm makes agents that never report again good for an hour, also in configs that are put later.
func calm(s *site) {
	s.config[`"report_interval": "1m"`] = `"report_interval": "1h"`
	s.putConfig(shardID)
}

// refusesOnlyWeb is a shard that has just refused to give up db.
func refusesOnlyWeb(t *testing.T, edits ...func(*site)) (*site, *process) {
	t.Helper()
	s, p := runningTwo(t, append([]func(*site){calm}, edits...)...)
	s.groupsBecome(onlyWeb)
	_, err := p.refresh()
	refused(t, err, codes.FailedPrecondition, "default/db")
	time.Sleep(time.Minute)
	return s, p
}

// TestAwaitedConfigWhoseMachinesAreGone: machines that are gone, or whose records are, confirm
// nothing: the group is rebuilt, and no machine is deleted.
func TestAwaitedConfigWhoseMachinesAreGone(t *testing.T) {
	room := func(n int) func(*site) { return func(s *site) { s.world.SetCapacity(map[string]int{"a": n, "b": n}) } }
	for name, take := range map[string]func(s *site, p *process) *process{
		"refused": func(_ *site, p *process) *process { return p },
		"takeover": func(s *site, p *process) *process {
			p.ends()
			q := s.start(named("b")).awaitLeading()
			_ = s.agents.move(q) // those that live
			return q
		},
	} {
		t.Run("dead/"+name, simulation(func(t *testing.T) {
			s, p := refusesOnlyWeb(t, room(100))
			room(0)(s)
			for _, id := range s.belonging("default", "db") {
				s.world.Kill(id)
			}
			take(s, p)
			time.Sleep(10 * time.Minute)
			room(100)(s)
			time.Sleep(10 * time.Minute)
			if n := len(s.belonging("default", "db")); n != 2 {
				t.Errorf("db has %d", n)
			}
		}))
		t.Run("without records/"+name, simulation(func(t *testing.T) {
			s, p := refusesOnlyWeb(t)
			machines, was := s.living(), map[string]string{}
			for _, key := range s.keys("instance/") {
				was[key] = s.get(key)
				s.remove(key)
			}
			s.world.ForgetCalls()
			take(s, p)
			time.Sleep(10 * time.Minute)
			for key, text := range was {
				s.put(key, text)
			}
			time.Sleep(10 * time.Minute)
			s.keptAll("after the records were put back", machines)
		}))
	}
}

// TestAwaitedConfigIsReadAgain: a config that awaits confirmation says the same each time it is read.
func TestAwaitedConfigIsReadAgain(t *testing.T) {
	simulated(t, func(t *testing.T) {
		_, p := refusesOnlyWeb(t)
		time.Sleep(10 * time.Minute)
		p.awaitsConfirmation("default/db")
	})
}

// TestAwaitedConfigBesideStrays: a group whose machines have lost their records has had machines: its
// removal still waits.
func TestAwaitedConfigBesideStrays(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := refusesOnlyWeb(t)
		machines, accepted := s.living(), s.accepted()
		s.world.SetCapacity(map[string]int{"a": 0, "b": 0}) // so that nothing takes their place
		for _, r := range s.records() {
			if r.Group == "db" {
				s.remove(recordKey(r))
			}
		}
		s.world.ForgetCalls()
		time.Sleep(20 * time.Minute)
		s.keptAlive("without the records of db", machines)
		if st := p.configStatus(); s.accepted() != accepted || len(st.GetAwaitsConfirmation()) != 1 {
			t.Errorf("status: %v", st)
		}
	})
}

// TestAwaitedConfigIsAnother: a text that replaces one that would take effect by itself waits for a
// refresh.
func TestAwaitedConfigIsAnother(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := runningBad(t)
		calm(s)
		p.refreshes(updated)
		time.Sleep(time.Minute)
		machines := s.living()
		s.world.ForgetCalls()
		s.groupsBecome(`"default": { "web": { "template": "knd", "size": 4 } }`)
		p.ends()
		q := s.successor()
		s.groupsBecome(`"default": { "web": { "template": "knd", "size": 1 } }`)
		time.Sleep(10 * time.Minute)
		s.keptAll("after another text", machines)
		q.refreshes(updated)
		q.awaitSize("web", 1)
	})
}

// TestAwaitedConfigIsReplaced: another text waits for a refresh, even if it needs no confirmation;
// the same one with a list of what it removes takes effect.
func TestAwaitedConfigIsReplaced(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := refusesOnlyWeb(t)
		machines := s.living()
		s.world.ForgetCalls()
		s.groupsBecome(`"default": { "web": { "template": "knd", "size": 1 }, "db": { "template": "knd", "size": 1 } }`)
		time.Sleep(10 * time.Minute)
		s.keptAll("after a text that was not asked for", machines)
		s.groupsBecome(onlyWeb)
		_, err := p.refresh()
		refused(t, err, codes.FailedPrecondition, "default/db")
		s.removes("default/db")
		s.awaitEmpty("default", "db")
	})
}

// TestAwaitedConfigThatIsNotStored: a config that could take effect, but can't be stored, is tried
// again at the next look, and not all the time.
func TestAwaitedConfigThatIsNotStored(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := runningBad(t)
		s.config["GROUPS"] = `"default": { "web": { "template": "knd", "size": 3 } }`
		p.ends()
		calm(s)
		q := s.successor()
		var reads atomic.Int64
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			switch of := strings.HasPrefix(r.Key, "applied/"); {
			case of && r.Verb == object.VerbPut:
				return objecttest.Outcome{Fault: objecttest.Refused}
			case of || r.Key == configAt:
				reads.Add(1)
			}
			return objecttest.Outcome{}
		})
		time.Sleep(time.Minute)
		reads.Store(0)
		time.Sleep(time.Hour)
		if n := reads.Load(); n < 15 || n > 400 {
			t.Errorf("%d reads in an hour", n)
		}
		s.store.Set(nil)
		time.Sleep(10 * time.Minute)
		q.awaitSize("web", 3)
	})
}

// TestStaleListOfRemoved: a list confirms only what the config before did not list: the API may have
// created the group again since.
func TestStaleListOfRemoved(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, with("GROUPS", onlyWeb+`, "prod": { "api": { "template": "knd", "size": 1 } }`), calm)
		s.config["GROUPS"] = onlyWeb
		s.removes("prod/api")
		p.refreshes(updated)
		s.awaitEmpty("prod", "api")
		time.Sleep(time.Minute)
		req := &nstancev1.UpsertGroupRequest{Key: "api", Template: ptr("knd"), Size: ptr(int32(2)), Create: true}
		if _, err := p.operator("prod").UpsertGroup(within(t), req); err != nil {
			t.Fatal(err)
		}
		s.awaitMachines("prod", "api", 2)
		s.replace(`"tenants": { "prod": {} }`, `"tenants": { }`, `"groups":`, `"removed": ["prod/api"], "groups":`)
		_, err := p.refresh()
		refused(t, err, codes.FailedPrecondition, "prod/api")
	})
}

// looking makes a server reread a config that can't run all the time.
func looking(c *server.Config) { c.Times.ConfigLook = 20 * time.Millisecond }

// TestConfigListsWhatItRemoves: a config that lists a group as removed takes its machines away
// without another word, at a takeover and by a refresh; one that it does not list stays.
func TestConfigListsWhatItRemoves(t *testing.T) {
	const more = `"default": { "more": { "template": "knd", "size": 1 } }`
	for name, next := range map[string]func(s *site, p *process) *process{
		"refresh": func(_ *site, p *process) *process { return p },
		"restart": func(s *site, p *process) *process {
			p.ends()
			q := s.start(named("b"), looking).awaitLeading()
			q.takesAgents()
			return q
		},
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s := newSite(t, with("GROUPS", twoGroups))
			p := s.start(looking)
			s.populate(p)
			p.awaitSize("web", 2)
			p.awaitSize("db", 2)
			web := s.belonging("default", "web")
			s.config["GROUPS"] = more
			s.removes("default/db", "default/other")
			q := next(s, p)
			if name == "refresh" {
				_, err := q.refresh()
				refused(t, err, codes.FailedPrecondition, "default/web")
				if have := failures(err); !slices.Equal(have, []string{"GROUP_REMOVED default/web"}) {
					t.Errorf("failures %q", have)
				}
			}
			time.Sleep(time.Minute)
			if got := s.belonging("default", "web"); !slices.Equal(got, web) {
				t.Errorf("web had %v and has %v", web, got)
			}
			s.removes("default/db", "default/web")
			s.awaitEmpty("default", "db")
			s.awaitEmpty("default", "web")
			q.awaitSize("more", 1)
		}))
	}
}
