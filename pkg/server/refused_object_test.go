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
	"github.com/nstance/nstance/pkg/server/leader"
	"github.com/nstance/nstance/pkg/server/problems"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// refuse makes the store refuse every read of these objects, as of an archived one.
func (s *site) refuse(of func(key string) bool) {
	s.store.Set(func(r objecttest.Request) objecttest.Outcome {
		if r.Verb == object.VerbGet && of(r.Key) {
			return objecttest.Outcome{Fault: objecttest.Refused}
		}
		return objecttest.Outcome{}
	})
}

// everyKind starts a shard that has each kind of object: groups, a tombstone of one, instances of
// groups and on-demand ones, the record of one that is gone, events, and another shard's leader.
func everyKind(t *testing.T) (s *site, p *process) {
	t.Helper()
	s, p, _ = elevenOf(t)
	if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "old", Template: ptr("knd"), Size: ptr(int32(1))}); err != nil {
		t.Fatal(err)
	}
	p.awaitSize("old", 1)
	if err := p.deletesGroup("old"); err != nil {
		t.Fatal(err)
	}
	s.awaitEmpty("default", "old")
	p.created("k")
	s.put("leader/dev-2.json", s.get("leader/dev-1.json"))
	eventually(t, "all live", func() error {
		if n := len(s.living()); n != 12 {
			return fmt.Errorf("%d live", n)
		}
		return nil
	})
	time.Sleep(10 * time.Second) // the events are stored
	s.world.ForgetCalls()
	return s, p
}

// TestOneObjectRefused: one object that the store refuses to return, of whatever kind, keeps no
// server from leading and costs no machine, at a takeover without a cache and as the term goes on.
// Once the store returns it, all is as before.
func TestOneObjectRefused(t *testing.T) {
	for name, which := range map[string]func(key string, s *site) bool{
		"a group":                func(key string, _ *site) bool { return key == groupAt("default", "job") },
		"an override":            func(key string, _ *site) bool { return key == webAt },
		"a tombstone":            func(key string, _ *site) bool { return key == groupAt("default", "old") },
		"a machine's record":     func(key string, s *site) bool { return key == s.recordOf(true) },
		"a record of one gone":   func(key string, s *site) bool { return key == s.recordOf(false) },
		"an on-demand record":    func(key string, s *site) bool { return key == recordKey(s.onDemand()[0]) },
		"an on-demand request":   func(key string, _ *site) bool { return strings.HasPrefix(key, "request/") },
		"the accepted config":    func(key string, _ *site) bool { return key == appliedAt },
		"the config":             func(key string, _ *site) bool { return key == configAt },
		"the events":             func(key string, _ *site) bool { return strings.HasPrefix(key, "events/") },
		"another shard's leader": func(key string, _ *site) bool { return key == "leader/dev-2.json" },
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := everyKind(t)
			machines := s.living()
			var refused []string
			for _, key := range s.keys("") {
				if which(key, s) {
					refused = append(refused, key)
				}
			}
			if len(refused) != 1 {
				t.Fatalf("refuses %q, want one object", refused)
			}
			s.refuse(func(key string) bool { return key == refused[0] })
			p.ends()
			q := s.successor() // its cache is empty
			time.Sleep(10 * time.Minute)
			s.keptAlive("after a takeover", machines)
			s.store.Set(nil)
			time.Sleep(10 * time.Minute)
			s.keptAlive("when it is returned", machines)
			if n := q.log.counting("problem", "reason", problems.ReasonMalformed); strings.HasPrefix(refused[0], "instance/") != (n > 0) {
				t.Errorf("%d records were told to be unreadable", n)
			}
			for key, size := range map[string]int32{"job": 9, "web": 2} {
				if g := s.mustGroup(q, key); g.GetSize() != size || len(g.GetConditions()) > 0 && condition(g, missingGroup) != nil {
					t.Errorf("%s is %v", key, g)
				}
			}
			if st := q.configStatus(); st.GetRunningApplied() {
				t.Errorf("status: %v", st)
			}
		}))
	}
}

// recordOf returns the key of the record of a machine of group job that lives, or of one that is
// gone.
func (s *site) recordOf(lives bool) string {
	for _, r := range s.records() {
		if r.Phase.Active() == lives && (r.Group == "job") == lives {
			return recordKey(r)
		}
	}
	s.t.Fatal("there is no such record")
	return ""
}

func recordKey(i fleet.Instance) string {
	return "instance/" + shardID + "/" + i.Tenant + "." + i.ID.StorageKey() + ".json"
}

// TestRemovalOfRefusedRecords: a config that takes away a group is asked about while a record can't
// be read: its machine may be of any group.
func TestRemovalOfRefusedRecords(t *testing.T) {
	for name, groups := range map[string]string{
		"size 0":  `"default": { "web": { "template": "knd", "size": 0 }, "db": { "template": "knd", "size": 2 } }`,
		"no size": `"default": { "web": { "template": "knd" }, "db": { "template": "knd", "size": 2 } }`,
		"removed": `"default": { "db": { "template": "knd", "size": 2 } }`,
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := runningTwo(t, replaced(`"report_interval": "1m"`, `"report_interval": "1h"`))
			machines := s.living()
			s.world.ForgetCalls()
			var of []string
			for _, r := range s.records() {
				if r.Group == "web" {
					of = append(of, recordKey(r))
				}
			}
			p.ends()
			s.refuse(func(key string) bool { return slices.Contains(of, key) })
			q := s.successor() // its cache is empty
			time.Sleep(10 * time.Minute)
			s.groupsBecome(groups)
			_, err := q.refresh()
			refused(t, err, codes.FailedPrecondition, "default/web", "not known yet")
			q.ends()
			r := s.successorNamed("c")
			time.Sleep(10 * time.Minute)
			s.keptAlive("after a takeover", machines)
			s.store.Set(nil)
			time.Sleep(10 * time.Minute)
			s.keptAlive("when they are returned", machines)
			_, err = r.refresh()
			refused(t, err, codes.FailedPrecondition, "default/web", "deletes")
		}))
	}
}

// keptAlive fails unless exactly these machines live and no delete was attempted.
func (s *site) keptAlive(what string, machines []fleet.InstanceID) {
	s.t.Helper()
	if now := s.living(); !slices.Equal(now, machines) || len(s.world.Calls(fake.OpDelete)) > 0 {
		s.t.Fatalf("%s: %d machines live of %d, deletes: %v", what, len(now), len(machines), s.world.Calls(fake.OpDelete))
	}
}

// TestAllRefused: a store that refuses to return any record of an instance holds a takeover, and so
// does one that refuses both texts of the config.
func TestAllRefused(t *testing.T) {
	for name, of := range map[string]func(key string) bool{
		"records": func(key string) bool { return strings.HasPrefix(key, "instance/") },
		"configs": func(key string) bool { return key == configAt || key == appliedAt },
		"all":     func(key string) bool { return key != "leader/dev-1.json" && !strings.HasPrefix(key, "cluster/") },
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p, _ := elevenOf(t)
			machines := s.living()
			p.ends()
			s.refuse(of)
			q := s.start(named("b"))
			time.Sleep(5 * time.Second) // hundreds of attempts
			if n := q.log.count("ready to act"); n > 0 {
				t.Error("it acts")
			}
			s.store.Set(nil)
			q.awaitLeading()
			q.takesAgents()
			time.Sleep(10 * time.Minute)
			s.keptAll("afterwards", machines)
		}))
	}
}

// TestRefreshOfARefusedConfig: the refresh of a config that the store refuses to return ends at
// once, with the reason, and says nothing of an unknown outcome.
func TestRefreshOfARefusedConfig(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, with("GROUPS", twoGroups))
		p := s.start(looking)
		s.populate(p)
		p.awaitSize("web", 2)
		s.refuse(func(key string) bool { return key == configAt })
		_, err := p.refresh()
		refused(t, err, codes.FailedPrecondition, "refused", "AccessDenied", "fix the cause")
		if strings.Contains(err.Error(), "unknown") {
			t.Errorf("answered %v", err)
		}
		p.ends()
		q := s.successorNamed("b")
		q.watchErrors("default").next("it is told", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == leader.ReasonConfig && strings.Contains(e.GetMessage(), "AccessDenied")
		})
	})
}

// TestRefusedGroupIsReset: the group of a refused override is disabled, and can be reset.
func TestRefusedGroupIsReset(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, _ := elevenOf(t)
		p.ends()
		s.refuse(func(key string) bool { return key == webAt })
		q := s.successor() // its cache is empty
		if c := condition(s.mustGroup(q, "web"), "Disabled"); c == nil || !strings.Contains(c.GetMessage(), "AccessDenied") {
			t.Errorf("condition %v", c)
		}
		_, err := q.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))})
		refused(t, err, codes.FailedPrecondition, "can't be read", "AccessDenied")
		if _, err := q.operator("default").ResetGroup(within(t), &nstancev1.ResetGroupRequest{Key: "web"}); err != nil {
			t.Fatal(err)
		}
		q.awaitSize("web", 1)
	})
}

// TestRefusedWrite: a write that the store refuses is said to be refused, and not to be unknown.
func TestRefusedWrite(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && strings.HasPrefix(r.Key, "groups/") {
				return objecttest.Outcome{Fault: objecttest.Refused}
			}
			return objecttest.Outcome{}
		})
		_, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))})
		refused(t, err, codes.Unavailable, "nothing was changed", "refused", "AccessDenied")
		if strings.Contains(err.Error(), "unknown") {
			t.Errorf("answered %v", err)
		}
	})
}
