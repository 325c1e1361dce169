package server_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/election"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/types/known/structpb"
)

// TestCertificatesOfOthers: a name that a template or a group's vars render is not certified
// if it belongs to a server or another instance, in any field. The problem names it; once the
// var is repaired, the certificate is issued.
func TestCertificatesOfOthers(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.config["MORE"] = `"advertise": { "election_addr": "nstance.internal:0" }, "leader_network": { "ipv4": "10.9.9.9" },`
		s.config["VARS"] = `{ "cn": "web", "org": "web", "dns": "web.example", "ip": "192.0.2.1", "uri": "//web.example/" }, "files": {
		  "web.crt": { "kind": "certificate", "template": "web", "key": { "source": "agent", "name": "web" } } }`
		s.config["GROUPS"] = `"default": { "web": { "template": "knd", "size": 1 }, "other": { "template": "knd", "size": 1 } } },
		"certificates": {
		  "web": { "tenants": ["*"], "kind": "peer", "cn": "{{ .Vars.cn }}", "organization": ["{{ .Vars.org }}"],
		    "dns": ["{{ .Vars.dns }}"], "ip": ["{{ .Vars.ip }}"], "uri": ["https:{{ .Vars.uri }}"], "ttl": 24 }`
		s.putConfig(shardID)
		s.put("leader/dev-2.json", `{ "holder": "b", "epoch": 1, "rev": 1, "lease_duration": "10s", "fence_window": "1s",
		  "addrs": { "election": "10.7.7.7:1", "registration": "other.internal:2", "operator": "[fd00::7]:3", "agent": "?" },
		  "servers": ["10.5.5.5", "follower.internal"] }`)
		s.put("leader/dev-4.json", `{ "holder": "c", "epoch": 1, "rev": 1, "lease_duration": "10s", "fence_window": "1s", "released": true,
		  "addrs": {}, "servers": ["10.4.4.4", "asleep.internal"] }`)
		s.put("leader/dev-3.json", "damaged")
		p := s.start()
		g := s.inhabit(p)
		p.awaitSize("web", 1)
		p.awaitSize("other", 1)
		web, other := "", ""
		for _, r := range s.records() {
			if r.Group == "web" {
				web = string(r.ID)
			} else {
				other = string(r.ID)
			}
		}
		addresses := map[string]string{}
		for _, vm := range s.world.VMs() {
			addresses[string(vm.ID)] = vm.Addresses[0].String()
		}
		s.world.Rename(fleet.InstanceID(other), "ip-10-0-0-9.zone.example")
		time.Sleep(5 * time.Minute) // a sweep, which records that name
		certified := func() (org string) {
			for _, vm := range s.world.VMs() {
				if string(vm.ID) != web {
					continue
				}
				if cert, err := pki.ParseCertificate([]byte(g.read(vm.ID, "web.crt"))); err == nil {
					return fmt.Sprint(cert.Subject.Organization)
				}
			}
			return ""
		}
		eventually(t, "a certificate", func() error {
			if certified() != "[web]" {
				return fmt.Errorf("it is of %q", certified())
			}
			return nil
		})
		standby := s.serverAt(shardID, "10.6.6.6", "standby.internal")
		_, port, _ := net.SplitHostPort(p.addr("serving", "election"))
		if answer, err := s.post("127.0.0.1:"+port, http.MethodGet, election.LeaderPath, standby, http.NoBody); err != nil {
			t.Fatal(answer, err)
		}
		eventually(t, "all servers in the election record", func() error {
			if have := s.get("leader/dev-1.json"); !strings.Contains(have, `"standby.internal"`) || !strings.Contains(have, `"10.9.9.9"`) {
				return errors.New(have)
			}
			return nil
		})
		n := 0
		for _, c := range []struct{ key, value, says string }{
			{"ip", "10.6.6.6", "a server"}, // a standby
			{"dns", "standby.internal", "a server"},
			{"dns", other, "another instance"},
			{"dns", other + ".example", "another instance"},
			{"dns", "Nstance.Internal", "a server"},
			{"dns", "*.internal", "a server"},
			{"ip", addresses[other], "another instance"},
			{"ip", "10.9.9.9", "a server"},
			{"ip", "10.7.7.7", "a server"}, // of another shard
			{"ip", "fd00::7", "a server"},
			{"dns", "other.internal", "a server"},
			{"ip", "10.5.5.5", "a server"}, // of a standby of that shard
			{"dns", "follower.internal", "a server"},
			{"ip", "10.4.4.4", "a server"}, // of a shard that is scaled to zero
			{"dns", "asleep.internal", "a server"},
			{"cn", "system:node:nstance.internal", "a server"}, // as a part of a text
			{"cn", "system:node:10.9.9.9", "a server"},
			{"org", "Nstance.Internal nodes", "a server"},
			{"uri", "//x.example/ns/FD00:0::7/a", "a server"},
			{"cn", "system:node:" + addresses[other], "another instance"},
			{"cn", "system:node:" + other, "another instance"},
			{"cn", "nstance.internal", "a server"},
			{"cn", addresses[other], "another instance"},
			{"org", "node-" + other, "another instance"},
			{"uri", "//x.example/ns/" + other, "another instance"},
			{"uri", "//nstance.internal:8443/", "a server"},
			{"uri", "//" + addresses[other] + "/", "another instance"},
			{"dns", "IP-10-0-0-9.zone.example", "another instance"}, // only known from the provider
			{"dns", "*.zone.example", "another instance"},
			{"uri", "//ip-10-0-0-9.zone.example/", "another instance"},
			{"cn", "system:node:knd01h455vb4pex5vsknk084sn02q", "another instance"}, // of another shard
		} {
			n++
			p.setVars(map[string]any{c.key: c.value, "serial": float64(n)})
			eventually(t, c.key+" "+c.value+" is told", func() error { return p.troubled(c.says) })
			p.setVars(map[string]any{"org": fmt.Sprint("after-", n)})
			eventually(t, "a certificate after "+c.value, func() error {
				if have := certified(); have != fmt.Sprintf("[after-%d]", n) {
					return fmt.Errorf("it is of %s", have)
				}
				return nil
			})
		}
		// It may use its own.
		p.setVars(map[string]any{"cn": "system:node:" + web, "ip": addresses[web], "dns": web + ".example", "org": "own"})
		eventually(t, "a certificate for its own names", func() error {
			if have := certified(); have != "[own]" {
				return fmt.Errorf("it is of %s", have)
			}
			return nil
		})
	})
}

// setVars sets the vars of group web, over its template's.
func (p *process) setVars(vars map[string]any) {
	p.t.Helper()
	v, err := structpb.NewStruct(vars)
	if err == nil {
		_, err = p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Vars: v})
	}
	if err != nil {
		p.t.Fatal(err)
	}
}
