package server_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/groups"
	"github.com/nstance/nstance/pkg/server/leader"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
)

// webAt is the key of group web's record.
const webAt = "groups/" + shardID + "/default/web.json"

// groupAt returns the key of a group's record.
func groupAt(tenant, name string) string {
	return "groups/" + shardID + "/" + tenant + "/" + name + ".json"
}

// groupRecord returns the stored record of a group.
func (s *site) groupRecord(tenant, name string) config.GroupRecord {
	s.t.Helper()
	text := s.get(groupAt(tenant, name))
	r, err := config.DecodeGroup([]byte(text))
	if err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
	return r
}

// forgotten returns an error unless a group has a tombstone.
func (s *site) forgotten(tenant, name string) error {
	s.t.Helper()
	if r := s.groupRecord(tenant, name); r.Exists() || !r.Stored() {
		return fmt.Errorf("%s is %+v", groupAt(tenant, name), r)
	}
	return nil
}

// successorNamed returns a server that takes over.
func (s *site) successorNamed(id string) *process {
	s.t.Helper()
	p := s.start(named(id)).awaitLeading()
	p.takesAgents()
	return p
}

// belonging returns the live machines of a group.
func (s *site) belonging(tenant, group string) (ids []fleet.InstanceID) {
	alive := s.living()
	for _, r := range s.records() {
		if r.Tenant == tenant && r.Group == group && slices.Contains(alive, r.ID) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

func (s *site) awaitEmpty(tenant, group string) {
	s.t.Helper()
	eventually(s.t, tenant+"/"+group+" is emptied", func() error {
		if ids := s.belonging(tenant, group); len(ids) > 0 {
			return fmt.Errorf("%v live", ids)
		}
		return nil
	})
}

// TestRefreshRemovesAGroup: a group that static config no longer defines is emptied, with
// drains; one with a record of its own stays.
func TestRefreshRemovesAGroup(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, with("GROUPS", `"default": {
		"web": { "template": "knd", "size": 2 }, "plain": { "template": "knd", "size": 2, "drain_timeout": "1h" },
		"own": { "template": "knd", "size": 1, "vars": { "own": true } } }`))
		p.awaitSize("plain", 2)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "own", Size: ptr(int32(2))}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("own", 2)
		kept := append(s.belonging("default", "web"), s.belonging("default", "own")...)

		s.config["GROUPS"] = `"default": { "web": { "template": "knd", "size": 2 } }`
		s.putConfig(shardID)
		p.refreshes(updated, "default/plain")
		s.awaitEmpty("default", "plain") // with the server's default drain timeout, 0: its own is gone
		own := s.mustGroup(p, "own")
		if own.GetIsStatic() || own.GetTemplate() != "knd" || own.GetSize() != 2 || !own.GetVars().GetFields()["own"].GetBoolValue() {
			t.Errorf("own is %v", own)
		}
		p.awaitSize("own", 2)
		if have := append(s.belonging("default", "web"), s.belonging("default", "own")...); !slices.Equal(have, kept) {
			t.Errorf("%v live, were %v", have, kept)
		}
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "own", Size: ptr(int32(1))}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("own", 1)
	})
}

// TestRefreshEndsTheTrouble: a new watch receives no problem of a removed group.
func TestRefreshEndsTheTrouble(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := cloudy(t, `"web": { "template": "knd", "size": 0 },
		"lost": { "template": "knd", "size": 1, "args": { "ImageId": "{{ .Image.lost }}" } }`)
		p := s.start().awaitLeading()
		p.trouble("lost", "images.lost")
		ofLost := func(e *nstancev1.WatchErrorsResponse) bool { return e.GetGroup() == "lost" }
		p.watchErrors("default").next("it is told", ofLost)
		s.replace(`"lost": { "template": "knd", "size": 1,`, `"other": { "template": "knd", "size": 0,`)
		p.refreshes(updated, "default/lost")
		if told := p.watchErrors("default").quiet(); slices.ContainsFunc(told, ofLost) {
			t.Errorf("told: %v", told)
		}
	})
}

// TestRefreshDrains: the machines of a removed group are drained first.
func TestRefreshDrains(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		machines := s.living()
		s.config["GROUPS"] = `"default": { "other": { "template": "knd", "size": 0 } }`
		s.put(configAt, strings.Replace(s.text(), `"default_drain_timeout": "0s"`, `"default_drain_timeout": "1h"`, 1))
		p.refreshes(updated, "default/web")
		for _, id := range machines {
			p.awaitPhase(id, nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING)
		}
		if have := s.living(); !slices.Equal(have, machines) {
			t.Errorf("%v live while they drain, were %v", have, machines)
		}
	})
}

// TestRefreshRemovesATenant: everything of it is removed, including dynamic groups, since no
// caller could delete them later.
func TestRefreshRemovesATenant(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, with("GROUPS", `"default": { "web": { "template": "knd", "size": 1 } },
		"prod": { "web": { "template": "knd", "size": 1 }, "api": { "template": "knd", "size": 1 } }`))
		p := s.start()
		s.populate(p)
		p.awaitSize("web", 1)
		prod := p.operator("prod")
		for key, template := range map[string]*string{"batch": ptr("knd"), "api": nil} { // a dynamic one, and a static one with an override
			if _, err := prod.UpsertGroup(within(t), &nstancev1.UpsertGroupRequest{Key: key, Template: template, Size: ptr(int32(2))}); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "tenant prod has five", func() error {
			if n := len(s.living()); n != 6 {
				return fmt.Errorf("%d live", n)
			}
			return nil
		})
		s.config["GROUPS"] = `"default": { "web": { "template": "knd", "size": 1 } }`
		s.put(configAt, strings.Replace(s.text(), `"tenants": { "prod": {} },`, ``, 1))
		p.refreshes(updated, "prod/web", "prod/api", "prod/batch")
		for _, group := range []string{"web", "api", "batch"} {
			s.awaitEmpty("prod", group)
		}
		eventually(t, "their entries are forgotten", func() error {
			return errors.Join(s.forgotten("prod", "api"), s.forgotten("prod", "batch"))
		})
		p.awaitSize("web", 1)
	})
}

// TestRefreshDisablesAGroup: a dynamic group whose template is gone is left alone and reports
// it; other groups are unaffected.
func TestRefreshDisablesAGroup(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		spare := `"spare": { "kind": "spr", "arch": "amd64", "subnet_pool": "workers" },`
		with := func(extra string) string {
			return strings.Replace(s.text(), `"templates": {`, `"templates": { `+extra, 1)
		}
		s.put(configAt, with(spare))
		p := s.start()
		s.populate(p)
		p.awaitSize("web", 2)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "batch", Template: ptr("spare"), Size: ptr(int32(1))}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("batch", 1)
		machines := s.living()
		s.world.ForgetCalls()
		s.put(configAt, strings.Replace(with(""), `"size": 2`, `"size": 3`, 1))
		p.refreshes(updated)
		p.awaitSize("web", 3)
		if g := s.mustGroup(p, "batch"); !strings.Contains(condition(g, "Disabled").GetMessage(), "spare") {
			t.Errorf("batch is %v", g)
		}
		p.watchErrors("default").next("it is told", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == groups.ReasonInvalid && strings.Contains(e.GetMessage(), "groups.default.batch.template")
		})
		for _, id := range machines {
			if !slices.Contains(s.living(), id) {
				t.Errorf("%s is gone", id)
			}
		}
		s.put(configAt, with(spare))
		p.refreshes(updated)
		p.awaitSize("batch", 1)
		if g := s.mustGroup(p, "batch"); condition(g, "Disabled") != nil {
			t.Errorf("batch is %v", g)
		}
	})
}

// TestRefreshWithAnUnreadableGroup: a config that removes nothing of a group with an unreadable
// record is accepted, and changes nothing of the group.
func TestRefreshWithAnUnreadableGroup(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.ends()
		s.put(webAt, `{ "size": [`)
		lease := func() string {
			return strings.Replace(s.text(), `"renew_interval": "1s", "lease_duration": "10s"`,
				`"renew_interval": "500ms", "lease_duration": "2s"`, 1)
		}
		s.put(configAt, lease())
		q := s.successor()
		s.put(configAt, strings.Replace(lease(), `"size": 2`, `"size": 1`, 1))
		q.refreshes(updated)
		time.Sleep(time.Minute)
		if n := len(s.living()); n != 2 {
			t.Errorf("%d machines live", n)
		}
		s.put(webAt, `{}`)
		q.awaitSize("web", 1)
	})
}

// TestRefreshTakesAnUnreadableGroup: a config that removes the definition of a group with an
// unreadable record is refused: the record that the group would keep is unknown.
func TestRefreshTakesAnUnreadableGroup(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, with("GROUPS",
			`"default": { "web": { "template": "knd", "size": 2 } }, "prod": { "api": { "template": "knd", "size": 1 } }`))
		p := s.start()
		s.populate(p)
		p.awaitSize("web", 2)
		p.ends()
		apiAt := groupAt("prod", "api")
		s.put(apiAt, `{ "size": [`)
		q := s.successor()
		s.config["GROUPS"] = `"default": { "web": { "template": "knd", "size": 1 } }, "prod": { "api": { "template": "knd", "size": 3 } }`
		s.putConfig(shardID)
		q.refreshes(updated)
		q.awaitSize("web", 1)
		if _, err := q.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(2))}); err != nil {
			t.Fatal(err)
		}
		q.awaitSize("web", 2)
		if n := len(s.belonging("prod", "api")); n != 1 {
			t.Errorf("prod has %d machines, and its size is unknown", n)
		}
		_, err := q.operator("prod").UpsertGroup(within(t), &nstancev1.UpsertGroupRequest{Key: "api", Size: ptr(int32(2))})
		refused(t, err, codes.FailedPrecondition, "prod", "can't be read", apiAt)
		accepted := s.accepted()
		s.config["GROUPS"] = `"default": { "web": { "template": "knd", "size": 1 } }`
		s.putConfig(shardID)
		_, err = q.refresh()
		refused(t, err, codes.FailedPrecondition, "prod", "can't be read", apiAt)
		if s.accepted() != accepted {
			t.Errorf("accepted all the same: %s", s.accepted())
		}
		s.put(apiAt, `{ "size": 2 }`)
		q.refreshes(updated)
		eventually(t, "api lives on", func() error {
			if n := len(s.belonging("prod", "api")); n != 2 {
				return fmt.Errorf("it has %d", n)
			}
			return nil
		})
	})
}

// TestEditDuringRefresh: a change of a group made for the old config is not lost: it is applied
// before, or validated against the new one.
func TestEditDuringRefresh(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		arrived := make(chan struct{}, 1)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && r.Key == appliedAt {
				arrived <- struct{}{}
				return objecttest.Outcome{Latency: 200 * time.Millisecond}
			}
			return objecttest.Outcome{}
		})
		s.config["GROUPS"] = `"default": { "other": { "template": "knd", "size": 0 } }`
		s.putConfig(shardID)
		client, answer := p.operator("default"), make(chan error, 1)
		go func() {
			_, err := client.RefreshConfig(within(t), &nstancev1.RefreshConfigRequest{AcceptRemovals: []string{"default/web"}})
			answer <- err
		}()
		<-arrived
		_, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))})
		refusedOneOf(t, err, codes.FailedPrecondition, codes.NotFound) // it is being deleted, or is deleted already
		if err := <-answer; err != nil {
			t.Fatal(err)
		}
		s.awaitEmpty("default", "web")
	})
}

// TestStandbyTakesOverAnInvalidConfig: the config becomes invalid while a standby waits. It runs
// the last accepted one, reports it, and changes no machine.
func TestStandbyTakesOverAnInvalidConfig(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		q := s.start(named("b"))
		q.awaitPeer()
		s.replace(`"size": 2`, `"size": 1`)
		p.refreshes(updated) // the standby was started with an older config than the accepted one
		p.awaitSize("web", 1)
		good, machines, group, records := s.get(configAt), s.living(), s.mustGroup(p, "web"), hashes(s)
		s.replace(`"size": 2`, `"size": 9, "instance_type": "huge"`, `"subnet_pool": "workers"`, `"subnet_pool": "wrkers"`)
		s.world.ForgetCalls()
		p.ends()
		q.awaitLeading()
		q.takesAgents()
		q.awaitSize("web", 1)
		if after := s.mustGroup(q, "web"); after.GetEtag() != group.GetEtag() {
			t.Errorf("the group went from %v to %v", group, after)
		}
		if have := hashes(s); !slices.Equal(have, records) {
			t.Errorf("hashes went from %v to %v", records, have)
		}
		if calls := append(s.world.Calls(fake.OpCreate), s.world.Calls(fake.OpDelete)...); len(calls) > 0 || !slices.Equal(s.living(), machines) {
			t.Errorf("%v live, were %v: %v", s.living(), machines, calls)
		}
		q.watchErrors("default").next("it is told", func(e *nstancev1.WatchErrorsResponse) bool { return e.GetReason() == leader.ReasonConfig })
		if st := q.configStatus(); !st.GetRunningApplied() || len(st.GetViolations()) == 0 || s.accepted() != good {
			t.Errorf("status: %v", st)
		}
		_, err := q.refresh()
		refused(t, err, codes.InvalidArgument)
		s.put(configAt, good)
		q.refreshes(updated)
		if st := q.configStatus(); st.GetRunningApplied() {
			t.Errorf("status when mended: %v", st)
		}
		q.awaitSize("web", 1)
	})
}

// hashes returns those of all instances that are not deleted.
func hashes(s *site) (all []string) {
	for _, r := range s.records() {
		if r.Phase != fleet.Deleted {
			all = append(all, string(r.ID)+r.Hashes.Infra+r.Hashes.Runtime)
		}
	}
	return all
}

// TestInvalidConfigIsLookedAt: the problem is reported while it lasts; it ends when config/ is
// the running config again, and a corrected, different one waits for a refresh.
func TestInvalidConfigIsLookedAt(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start(looking)
		s.populate(p)
		p.awaitSize("web", 2)
		good := s.get(configAt)
		s.put(configAt, "{")
		_, err := p.refresh()
		refused(t, err, codes.InvalidArgument)
		told := p.watchErrors("default")
		for range 3 {
			told.next("it is told again", func(e *nstancev1.WatchErrorsResponse) bool { return e.GetReason() == leader.ReasonConfig })
		}
		says := func(what string, ok func(*nstancev1.GetConfigStatusResponse) bool) {
			t.Helper()
			eventually(t, what, func() error {
				if st := p.configStatus(); !ok(st) {
					return fmt.Errorf("status: %v", st)
				}
				return nil
			})
		}
		s.replace(`"size": 2`, `"size": 1`)
		says("it waits for a refresh", func(st *nstancev1.GetConfigStatusResponse) bool {
			return st.GetRunningApplied() && len(st.GetViolations()) == 1 &&
				strings.Contains(st.GetViolations()[0].GetDescription(), "waiting for a refresh")
		})
		if g := s.mustGroup(p, "web"); g.GetSize() != 2 {
			t.Errorf("web is %v before a refresh", g)
		}
		s.put(configAt, good)
		says("it is over", func(st *nstancev1.GetConfigStatusResponse) bool {
			return !st.GetRunningApplied() && len(st.GetViolations()) == 0
		})
		p.refreshes(unchanged)
	})
}
