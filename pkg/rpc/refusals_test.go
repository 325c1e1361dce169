package rpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// journal collects log lines.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(j, nil)) }

// refused returns the lines about refused calls so far.
func (j *journal) refused(t *testing.T) (lines []map[string]any) {
	t.Helper()
	return j.lines(t, "refused a call")
}

// lines returns those with this message.
func (j *journal) lines(t *testing.T, message string) (lines []map[string]any) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.text.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		if fields["msg"] == message {
			lines = append(lines, fields)
		}
	}
	return lines
}

// TestRefusalsLeaveALine: with the caller, the method, the address and the reason.
func TestRefusalsLeaveALine(t *testing.T) {
	ours := newAuthority(t, cluster)
	revoked := rpc.CertificateRevoked.Errorf("instance %s is deleted", instanceID)
	agentID := "spiffe://" + cluster + "/default/agent/" + instanceID
	operatorSPIFFE := "spiffe://" + cluster + "/default/operator/" + operatorID
	submit, list := nstancev1.AgentService_SubmitPublicKeys_FullMethodName, nstancev1.OperatorService_ListGroups_FullMethodName
	for _, c := range []struct {
		name, caller, method, reason string
		pair                         *pki.Keypair
		set                          func(*rpc.ServerConfig)
	}{
		{"wrong role", agentID, list, "requires role operator", ours.agent(time.Hour), func(*rpc.ServerConfig) {}},
		{"revoked", agentID, submit, "is deleted", ours.agent(time.Hour), func(c *rpc.ServerConfig) {
			c.Judge = judge{look: func(context.Context, pki.Caller) error { return revoked }}
		}},
		{"no certificate", "none", submit, "requires a client certificate", nil, func(c *rpc.ServerConfig) {
			c.TLS = ours.endpoint(ours.server(shard)).RegistrationServer()
		}},
		{"denied by the handler", operatorSPIFFE, list, "not yours", ours.operator(time.Hour), func(c *rpc.ServerConfig) {
			c.Services = serving(failing(rpc.Denied.Errorf("not yours")))
		}},
		{"a limit", operatorSPIFFE, list, "too many", ours.operator(time.Hour), func(c *rpc.ServerConfig) {
			c.Services = serving(failing(rpc.Exhausted.Errorf("too many")))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log journal
			config := ours.config()
			config.Logger = log.logger()
			c.set(&config)
			conn := ours.dial(serve(t, config), c.pair)
			var err error
			if c.method == list {
				err = listGroups(t.Context(), conn)
			} else {
				err = announced(t, conn, c.method)
			}
			if err == nil {
				t.Fatal("the call was not refused")
			}
			lines := log.refused(t)
			if len(lines) != 1 {
				t.Fatalf("%d lines, want one", len(lines))
			}
			line := lines[0]
			from, _ := line["from"].(string)
			reason, _ := line["reason"].(string)
			if line["caller"] != c.caller || line["method"] != c.method || !strings.HasPrefix(from, "127.0.0.1:") ||
				!strings.Contains(reason, c.reason) {
				t.Errorf("the line says %v", line)
			}
		})
	}
}

// TestAnswersAreNoRefusals: other answers leave no line.
func TestAnswersAreNoRefusals(t *testing.T) {
	ours := newAuthority(t, cluster)
	for name, set := range map[string]func(*rpc.ServerConfig){
		"not the leader": func(c *rpc.ServerConfig) { c.Gate = &seat{leader: "10.0.0.9:8993"} },
		"not found": func(c *rpc.ServerConfig) {
			c.Services = serving(failing(rpc.NotFound.Errorf("no such group")))
		},
		"the store is away": func(c *rpc.ServerConfig) {
			c.Judge = judge{look: func(context.Context, pki.Caller) error { return rpc.Unavailable.Errorf("no answer") }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log journal
			config := ours.config()
			config.Logger = log.logger()
			set(&config)
			if err := listGroups(t.Context(), ours.dial(serve(t, config), ours.operator(time.Hour))); err == nil {
				t.Fatal("the call was answered")
			}
			if lines := log.refused(t); len(lines) != 0 {
				t.Errorf("it left %v", lines)
			}
		})
	}
}

// TestRefusalsAreBounded: a flood leaves some lines, and the next one has the number of
// omitted ones.
func TestRefusalsAreBounded(t *testing.T) {
	ours := newAuthority(t, cluster)
	var log journal
	config := ours.config()
	config.Logger = log.logger()
	config.Limits.Opens = rpc.Rate{PerSecond: 1e6, Burst: 1e6}
	start := ours.clock.now()
	config.Now = func() time.Time { return start.Add(time.Duration(ours.clock.offset.Load())) }
	conn := ours.dial(serve(t, config), ours.agent(time.Hour))
	refuse := func(n int) {
		t.Helper()
		for range n {
			if err := listGroups(t.Context(), conn); status.Code(err) != codes.PermissionDenied {
				t.Fatal(err)
			}
		}
	}
	const flood = 500
	refuse(flood)
	told := len(log.refused(t))
	if told == 0 || told > 50 {
		t.Fatalf("%d lines of %d calls", told, flood)
	}
	ours.clock.advance(10 * time.Second)
	refuse(1)
	lines := log.refused(t)
	if len(lines) != told+1 {
		t.Fatalf("%d lines after a pause, want %d", len(lines), told+1)
	}
	if left, _ := lines[told]["left_out"].(float64); int(left) != flood-told {
		t.Errorf("the line after the pause says that %v were left out, want %d", lines[told]["left_out"], flood-told)
	}
}

func failing(err error) func(context.Context) (*nstancev1.ListGroupsResponse, error) {
	return func(context.Context) (*nstancev1.ListGroupsResponse, error) { return nil, err }
}
