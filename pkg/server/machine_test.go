package server_test

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/server"
)

// TestPortTaken: waiting does not free a port that another process uses, so the process ends,
// and its one error names the field or flag, and the address.
func TestPortTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	addr := taken.Addr().String()
	for name, c := range map[string]struct {
		field string // of the config
		flags server.Endpoints
		says  string
	}{
		"election, config":     {field: "election_addr", says: "server.bind.election_addr"},
		"registration, config": {field: "registration_addr", says: "server.bind.registration_addr"},
		"operator, config":     {field: "operator_addr", says: "server.bind.operator_addr"},
		"agent, config":        {field: "agent_addr", says: "server.bind.agent_addr"},
		"agent, flag":          {flags: server.Endpoints{Health: "127.0.0.1:0", Agent: addr}, says: "--agent-addr"},
		"health, flag":         {flags: server.Endpoints{Health: addr}, says: "--health-addr"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onThisMachine(t)
			if c.field != "" {
				s.config["BIND"] = strings.Replace(s.config["BIND"], `"`+c.field+`": "127.0.0.1:0"`, `"`+c.field+`": "`+addr+`"`, 1)
				s.putConfig(shardID)
			}
			p := s.start(func(cfg *server.Config) {
				if c.flags != (server.Endpoints{}) {
					cfg.Bind = c.flags
				}
			})
			select {
			case <-p.done:
			case <-time.After(patience):
				t.Fatal("the server goes on")
			}
			if p.err == nil || !strings.HasPrefix(p.err.Error(), c.says+": "+addr+" is already in use") {
				t.Errorf("ended with %v", p.err)
			}
			if keys := s.keys("leader/"); len(keys) > 0 {
				t.Errorf("it campaigned: %v", keys)
			}
		})
	}
}

// TestOnThisMachine: one leader follows another, and servers, agents and operators use TCP.
func TestOnThisMachine(t *testing.T) {
	t.Parallel()
	s := onThisMachine(t)
	// A machine that is busy for seconds must not make a leader lose its lease or be too late
	// to act, nor agents, which report once, fall silent.
	s.replace(`"renew_interval": "1s", "lease_duration": "10s", "fence_window": "100ms"`,
		`"renew_interval": "10s", "lease_duration": "10m", "fence_window": "3s", "give_up": "1h"`,
		`"report_interval": "1m"`, `"report_interval": "1h"`)
	p := s.start()
	s.populate(p)
	p.awaitSize("web", 2)
	q := s.start(named("b"))
	q.awaitHealth(http.StatusOK, "standing by")
	q.awaitPeer()
	before := s.living()
	p.ends()
	q.awaitLeading()
	eventually(t, "the agents report to it", func() error { return s.agents.move(q) }) // a handshake may take too long
	q.awaitSize("web", 2)
	if after := s.living(); !slices.Equal(before, after) {
		t.Errorf("%v live, were %v", after, before)
	}
}
