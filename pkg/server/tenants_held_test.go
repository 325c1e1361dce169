package server_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
)

// awaitMachines waits until a group has n live machines.
func (s *site) awaitMachines(tenant, group string, n int) (ids []fleet.InstanceID) {
	s.t.Helper()
	eventually(s.t, tenant+"/"+group+" is at size", func() error {
		if ids = s.belonging(tenant, group); len(ids) != n {
			return fmt.Errorf("%d machines", len(ids))
		}
		return nil
	})
	return ids
}

// steppedDown makes the server lose the lead and take it again, like a successor.
func (s *site) steppedDown(p *process) {
	s.t.Helper()
	before := p.log.count("ready to act")
	s.remove("leader/" + shardID + ".json")
	eventually(s.t, "it leads again", func() error {
		if p.log.count("ready to act") == before {
			return fmt.Errorf("it does not")
		}
		return nil
	})
}

// serial returns that of a machine's certificate.
func (g *guests) serial(id fleet.InstanceID, name string) string {
	g.site.t.Helper()
	block, _ := pem.Decode([]byte(g.read(id, name)))
	if block == nil {
		g.site.t.Fatalf("%s has no certificate in %s: %s", id, name, g.read(id, name))
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		g.site.t.Fatal(err)
	}
	return cert.SerialNumber.String()
}

// renews checks whether a machine's certificate is renewed when due, which is within an hour.
func (g *guests) renews(id fleet.InstanceID, want bool) {
	g.site.t.Helper()
	before := g.serial(id, "web.crt")
	time.Sleep(time.Hour) // simulated
	if g.serial(id, "web.crt") != before != want {
		g.site.t.Errorf("the certificate of %s was renewed: %v, want %v", id, !want, want)
	}
}

// conditionOf returns the condition of a group's definition as its tenant sees it; empty if
// valid.
func (p *process) conditionOf(tenant, group string) (message string, status *nstancev1.GroupStatus) {
	p.t.Helper()
	resp, err := p.operator(tenant).ListGroups(within(p.t), &nstancev1.ListGroupsRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, g := range resp.GetGroups() {
		if g.GetKey() == group {
			return condition(g, "Disabled").GetMessage(), g
		}
	}
	p.t.Fatalf("%s has no group %s", tenant, group)
	return "", nil
}

// TestAcceptedByAnEarlierVersion: at a takeover, a text is checked by rules that the accepting
// version did not have. The groups concerned are held, and report it; they keep receiving
// files and certificates, and other groups are unaffected. A refresh applies all rules.
func TestAcceptedByAnEarlierVersion(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := furnished(t, `"default": { "web": { "template": "knd", "size": 1 } }, "prod": { "web": { "template": "knd", "size": 2 } }`)
		s.config["GROUPS"] = strings.Replace(s.config["GROUPS"], `"ttl": 24`, `"ttl": 1`, 1)
		s.putConfig(shardID)
		p := s.start()
		g := s.inhabit(p, func(g *guests) { g.calm = true })
		ours, theirs := s.awaitMachines("default", "web", 1), s.awaitMachines("prod", "web", 2)
		for _, id := range theirs {
			g.awaitFile(id, "app.conf", "info "+string(id))
		}
		for _, key := range []string{configAt, appliedAt} {
			s.put(key, strings.Replace(s.get(key), `"knd": { "tenants": ["*"],`, `"knd": {`, 1))
		}
		s.steppedDown(p)

		why, status := p.conditionOf("prod", "web")
		if !strings.Contains(why, `template: the template "knd" is not for tenant "prod": want templates.knd.tenants`) || status.GetSize() != 2 {
			t.Errorf("prod's group is %v, want it held, and why", status)
		}
		if why, _ := p.conditionOf("default", "web"); why != "" {
			t.Errorf("default's group is held: %s", why)
		}
		if st := p.configStatus(); !st.GetRunningApplied() || len(st.GetViolations()) != 1 {
			t.Errorf("the config's status is %v", st)
		}
		_, err := p.refresh()
		refused(t, err, codes.InvalidArgument, `groups.prod.web.template`)

		s.world.Kill(ours[0])
		s.world.Kill(theirs[0])
		eventually(t, "default's machine is replaced", func() error {
			if now := s.belonging("default", "web"); len(now) != 1 || now[0] == ours[0] {
				return fmt.Errorf("there are %v", now)
			}
			return nil
		})
		g.renews(theirs[1], true)
		if now := s.belonging("prod", "web"); !slices.Equal(now, theirs[1:]) {
			t.Errorf("prod has %v, want what is left of %v", now, theirs)
		}

		s.putConfig(shardID) // with the list
		p.refreshes(updated)
		s.awaitMachines("prod", "web", 2)
		if why, _ := p.conditionOf("prod", "web"); why != "" {
			t.Errorf("prod's group is held: %s", why)
		}
	})
}

// TestTemplateTakenFromATenant: the machines of a group whose tenant may no longer use its
// template keep the last version that it could use, also under the next leader and whatever
// the template becomes; a file that the tenant may not use either stays unchanged. The group
// creates no machine, and reports all of this.
func TestTemplateTakenFromATenant(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := furnished(t, `"default": { "web": { "template": "knd", "size": 1 } }`)
		s.config["GROUPS"] = strings.Replace(s.config["GROUPS"], `"ttl": 24`, `"ttl": 1`, 1)
		s.putConfig(shardID)
		p := s.start()
		g := s.inhabit(p, func(g *guests) { g.calm = true })
		if _, err := p.operator("prod").UpsertGroup(within(t), &nstancev1.UpsertGroupRequest{
			Key: "jobs", Template: ptr("knd"), Size: ptr(int32(2)), Create: true,
		}); err != nil {
			t.Fatal(err)
		}
		ids := s.awaitMachines("prod", "jobs", 2)
		for _, id := range ids {
			g.awaitFile(id, "app.conf", "info "+string(id))
		}
		hash := firstLine(g.read(ids[0], "config.hash"))

		s.put("files/net.json", `{"mtu":9000}`)
		s.replace(`"knd": { "tenants": ["*"],`, `"knd": {`, `"content": "{{ .Vars.level }} {{`, `"content": "default's own {{`,
			`"files/": { "tenants": ["*"] }`, `"files/": {}`)
		p.refreshes(updated)
		why, status := p.conditionOf("prod", "jobs")
		for _, want := range []string{
			`template: no such template "knd"`, "no machine of this group is created, replaced or removed", "from the last template version",
			`file net.json stays unchanged on the machines: source: the stored file "files/net.json" is not for tenant "prod"`,
		} {
			if !strings.Contains(why, want) {
				t.Errorf("the group is %v, want it to say %q", status, want)
			}
		}
		ours := s.awaitMachines("default", "web", 1)
		g.awaitFile(ours[0], "app.conf", "default's own "+string(ours[0]))
		g.awaitFile(ours[0], "net.json", `{"mtu":9000}`)

		s.steppedDown(p)
		s.world.Kill(ids[0])
		g.renews(ids[1], true)
		if err := os.Remove(g.path(ids[1], "recv", "app.conf")); err != nil {
			t.Fatal(err)
		}
		g.awaitFile(ids[1], "app.conf", "info "+string(ids[1]))
		if have := g.read(ids[1], "net.json"); have != `{"mtu":1500}` {
			t.Errorf("what is not for the tenant any more was sent: %s", have)
		}
		if now := firstLine(g.read(ids[1], "config.hash")); now != hash {
			t.Errorf("the machine went from %q to %q", hash, now)
		}
		if now := s.belonging("prod", "jobs"); !slices.Equal(now, ids[1:]) {
			t.Errorf("prod has %v, want what is left of %v", now, ids)
		}

		s.putConfig(shardID)
		p.refreshes(updated)
		s.awaitMachines("prod", "jobs", 2)
		if why, _ := p.conditionOf("prod", "jobs"); why != "" || strings.Contains(s.get(groupAt("prod", "jobs")), "kept") {
			t.Errorf("it is held, because %s, or goes on by what was kept: %s", why, s.get(groupAt("prod", "jobs")))
		}
		g.awaitFile(ids[1], "net.json", `{"mtu":9000}`)
	})
}

// TestNoRoomToKeep: a record at its size limit does not prevent a refresh from withdrawing its
// template; its machines keep the files they have.
func TestNoRoomToKeep(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.config["VARS"] = `{ "n": 1 }, "files": { "a.conf": { "kind": "string", "content": "` + strings.Repeat("x", 200<<10) + `" } }`
		s.putConfig(shardID)
		s.put(groupAt("prod", "jobs"), `{ "epoch": 0, "rev": 1, "writer": "w", "template": "knd", "size": 1,
			"args": { "pad": "`+strings.Repeat("x", 8<<20-100<<10)+`" } }`)
		p := s.start().awaitLeading()
		if why, _ := p.conditionOf("prod", "jobs"); why != "" {
			t.Fatal(why)
		}
		s.replace(`"knd": { "tenants": ["*"],`, `"knd": {`)
		p.refreshes(updated)
		if why, _ := p.conditionOf("prod", "jobs"); !strings.Contains(why, "keep the files they have") {
			t.Errorf("it is held, because %s", why)
		}
	})
}
