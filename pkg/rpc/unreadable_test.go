package rpc_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestUnreadableMessages: an invalid message is the sender's fault, not a failure of the
// server.
func TestUnreadableMessages(t *testing.T) {
	ours := newAuthority(t, cluster)
	list, upsert := nstancev1.OperatorService_ListGroups_FullMethodName, nstancev1.OperatorService_UpsertGroup_FullMethodName
	watch := nstancev1.OperatorService_WatchGroups_FullMethodName
	keys, report := nstancev1.AgentService_KeyGenRequests_FullMethodName, nstancev1.AgentService_ReportHealth_FullMethodName
	agent, operator := ours.agent(time.Hour), ours.operator(time.Hour)
	endsWithHeaders := []byte{}
	const invalid, internal = "3", "13" // gRPC itself answers for an invalid message frame
	for _, c := range []struct {
		name, method string
		pair         *pki.Keypair
		body         []byte
		want         string
	}{
		{"none", list, operator, nil, invalid},
		{"none, of a server stream", keys, agent, nil, internal},
		{"none, as its headers say", list, operator, endsWithHeaders, invalid},
		{"none, as its headers say, of a server stream", keys, agent, endsWithHeaders, invalid},
		{"undecodable", upsert, operator, []byte{0, 0, 0, 0, 2, 0x0a, 0x7f}, invalid},
		{"undecodable, of a server stream", watch, operator, []byte{0, 0, 0, 0, 2, 0x0a, 0x7f}, invalid},
		{"undecodable, of a stream of messages", report, agent, []byte{0, 0, 0, 0, 2, 0x0a, 0x7f}, invalid},
		{"truncated", list, operator, []byte{0, 0, 0, 0, 9, 1}, internal},
		{"compressed with nothing", list, operator, []byte{1, 0, 0, 0, 1, 1}, internal},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log journal
			config := ours.config()
			config.Logger = log.logger()
			if c.method == report {
				config.Services = func(r grpc.ServiceRegistrar) { nstancev1.RegisterAgentServiceServer(r, patient{}) }
			}
			var body io.Reader = bytes.NewReader(c.body)
			if c.body == nil {
				body = io.MultiReader(body) // of unknown length
			}
			response, err := ours.post(t, serve(t, config), c.pair, c.method, body)
			if err != nil {
				t.Fatal(err)
			}
			if got := response.Header.Get("Grpc-Status"); got != c.want {
				t.Errorf("grpc-status %q %q, want %s", got, response.Header.Get("Grpc-Message"), c.want)
			}
			if lines := log.lines(t, "a call failed"); len(lines) != 0 {
				t.Errorf("it left %v", lines)
			}
		})
	}
}

// TestFailuresAreBounded: a failure's line names the caller, and a flood of failures does not
// fill the log.
func TestFailuresAreBounded(t *testing.T) {
	ours := newAuthority(t, cluster)
	var log journal
	config := ours.config()
	config.Logger = log.logger()
	config.Services = serving(failing(errors.New("the disk burns")))
	config.Limits.Opens = rpc.Rate{PerSecond: 1e6, Burst: 1e6}
	conn := ours.dial(serve(t, config), ours.operator(time.Hour))
	for range 200 {
		if err := listGroups(t.Context(), conn); err == nil {
			t.Fatal("the call did not fail")
		}
	}
	lines := log.lines(t, "a call failed")
	if len(lines) == 0 || len(lines) > 50 {
		t.Fatalf("%d lines of 200 failures", len(lines))
	}
	from, _ := lines[0]["from"].(string)
	if lines[0]["caller"] != "spiffe://"+cluster+"/default/operator/"+operatorID || !strings.HasPrefix(from, "127.0.0.1:") ||
		lines[0]["method"] != nstancev1.OperatorService_ListGroups_FullMethodName || lines[0]["reason"] != "the disk burns" {
		t.Errorf("the line says %v", lines[0])
	}
}
