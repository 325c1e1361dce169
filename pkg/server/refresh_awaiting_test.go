package server_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

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

// TestAwaitedConfigWithoutMachines: a config that a takeover held takes effect as soon as the
// provider has been listed and shows no machine that it takes away.
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

// TestAwaitedConfigAfterTheLastMachine: a config that a refresh held takes effect when the last
// machine that it takes away has gone, and not before.
func TestAwaitedConfigAfterTheLastMachine(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := runningTwo(t)
		web := s.belonging("default", "web")
		s.groupsBecome(`"default": { "web": { "template": "knd", "size": 2 }, "more": { "template": "knd", "size": 1 } }`)
		_, err := p.refresh()
		refused(t, err, codes.FailedPrecondition, "default/db")
		time.Sleep(time.Minute)
		p.awaitsConfirmation("default/db")
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "db", Size: ptr(int32(0))}); err != nil {
			t.Fatal(err)
		}
		s.awaitEmpty("default", "db")
		p.awaitSize("more", 1)
		if got := s.belonging("default", "web"); !slices.Equal(got, web) {
			t.Errorf("web had %v and has %v", web, got)
		}
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
