package rpc_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestEachMethodIsAuditedOrReads: an unaudited method must not change anything.
func TestEachMethodIsAuditedOrReads(t *testing.T) {
	audited := rpc.Audited()
	reads := []string{"Get", "List", "Watch", "Check", "Preview"}
	streams := []string{ // they carry reports and deliveries
		nstancev1.AgentService_KeyGenRequests_FullMethodName, nstancev1.AgentService_ReceiveFiles_FullMethodName,
		nstancev1.AgentService_ReportHealth_FullMethodName,
	}
	for method := range rpc.Access() {
		name := method[strings.LastIndex(method, "/")+1:]
		reading := slices.ContainsFunc(reads, func(verb string) bool { return strings.HasPrefix(name, verb) }) ||
			slices.Contains(streams, method) || name == "ServerReflectionInfo"
		if _, is := audited[method]; is == reading {
			t.Errorf("%s: audited is %v and reading %v: want one of the two", method, is, reading)
		}
	}
	for method := range audited {
		if _, ok := rpc.Access()[method]; !ok {
			t.Errorf("%s is in no row of the access table", method)
		}
	}
}

// awaitLines waits for lines with a message: a server writes one after its client was
// answered.
func (j *journal) awaitLines(t *testing.T, message string, want int) []map[string]any {
	t.Helper()
	timeout := time.After(patience)
	for {
		lines := j.lines(t, message)
		if len(lines) == want {
			return lines
		}
		select {
		case <-timeout:
			t.Fatalf("%d lines %q, want %d: %v", len(lines), message, want, lines)
		case <-time.After(time.Millisecond):
		}
	}
}

// TestRefusedHandshakesLeaveALine: an untrusted, missing or expired certificate, and a
// connection without TLS, leave a line with unverified claims and no caller.
func TestRefusedHandshakesLeaveALine(t *testing.T) {
	ours, strangers := newAuthority(t, cluster), newAuthority(t, cluster)
	old := ours.agent(time.Hour)
	ours.clock.advance(2 * time.Hour)
	for _, c := range []struct {
		name  string
		pair  *pki.Keypair
		uri   string
		plain string // instead of TLS
		says  string
	}{
		{
			name: "a strange CA", pair: strangers.operator(time.Hour), uri: "spiffe://" + cluster + "/default/operator/" + operatorID,
			says: "certificate",
		},
		{name: "expired", pair: old, uri: "spiffe://" + cluster + "/default/agent/" + instanceID, says: "expired"},
		{name: "none", says: "certificate"},
		{name: "no TLS", plain: "GET / HTTP/1.1\r\nHost: x\r\n\r\n", says: "TLS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log journal
			config := ours.config()
			config.Logger, config.Name = log.logger(), "operator"
			address := serve(t, config)
			if c.plain != "" {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if _, err := conn.Write([]byte(c.plain)); err != nil {
					t.Fatal(err)
				}
			} else {
				ours.shake(address, c.pair)
			}
			line := log.awaitLines(t, "refused a handshake", 1)[0]
			claims, _ := line["claims"].(map[string]any)
			uri, _ := claims["uri"].(string)
			from, _ := line["from"].(string)
			reason, _ := line["reason"].(string)
			if line["caller"] != audit.None || line["method"] != "operator" || uri != c.uri || !strings.HasPrefix(from, "127.0.0.1:") ||
				!strings.Contains(reason, c.says) {
				t.Errorf("the line says %v", line)
			}
		})
	}
}

// shake does a TLS handshake and reads until the server has answered. It accepts any server,
// since only the server is under test.
func (a *authority) shake(address string, pair *pki.Keypair) {
	config := a.endpoint(pair).Client("127.0.0.1", shard)
	config.VerifyConnection, config.NextProtos = nil, []string{"h2"}
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Read(make([]byte, 1))
}

// TestRefusedPeers: the listener for elections leaves the same lines.
func TestRefusedPeers(t *testing.T) {
	ours, strangers := newAuthority(t, cluster), newAuthority(t, cluster)
	var log journal
	book, err := audit.New(audit.Config{Logger: log.logger(), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	server := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(rpc.NewTLSListener(ctx, l, ours.endpoint(ours.server(shard)).PeerServer(shard), time.Minute, "election", book))
	}()
	t.Cleanup(func() { stop(); _ = server.Close(); <-done })
	ours.shake(l.Addr().String(), strangers.server(shard))
	ours.shake(l.Addr().String(), ours.agent(time.Hour)) // a certificate of the cluster, but not a server's
	for _, line := range log.awaitLines(t, "refused a handshake", 2) {
		claims, _ := line["claims"].(map[string]any)
		if line["method"] != "election" || claims["issuer"] == nil {
			t.Errorf("the line says %v", line)
		}
	}
}

// TestKnocksLeaveNothing: a port check is not a refusal.
func TestKnocksLeaveNothing(t *testing.T) {
	ours, strangers := newAuthority(t, cluster), newAuthority(t, cluster)
	var log journal
	config := ours.config()
	config.Logger = log.logger()
	address := serve(t, config)
	for range 3 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	ours.shake(address, strangers.agent(time.Hour)) // comes after those
	log.awaitLines(t, "refused a handshake", 1)
}

// TestAcceptedChangesLeaveALine: changes leave a line, reads do not.
func TestAcceptedChangesLeaveALine(t *testing.T) {
	ours := newAuthority(t, cluster)
	var log journal
	config := ours.config()
	config.Logger = log.logger()
	config.Services = submitting
	conn := ours.dial(serve(t, config), ours.agent(time.Hour))
	client := nstancev1.NewAgentServiceClient(conn)
	if _, err := client.SubmitPublicKeys(t.Context(), &nstancev1.SubmitPublicKeysRequest{}); err != nil {
		t.Fatal(err)
	}
	line := log.awaitLines(t, "accepted a change", 1)[0]
	if line["caller"] != "spiffe://"+cluster+"/default/agent/"+instanceID || line["audit"] != "change" ||
		line["object"] != "instance "+instanceID || line["wanted"] != nil ||
		line["method"] != nstancev1.AgentService_SubmitPublicKeys_FullMethodName {
		t.Errorf("the line says %v", line)
	}
}

// TestUnknownOutcomesLeaveALine: if a caller disconnects before a change is confirmed, a line
// is left; also for a change that panics, and one that is refused. Each has the wanted
// changes.
func TestUnknownOutcomesLeaveALine(t *testing.T) {
	ours := newAuthority(t, cluster)
	for want, end := range map[string]func(ctx context.Context, goAway func()) error{
		"a change may have been carried out": func(ctx context.Context, goAway func()) error { goAway(); <-ctx.Done(); return ctx.Err() },
		"a call failed":                      func(context.Context, func()) error { panic("of the test") },
		"refused a call":                     func(context.Context, func()) error { return rpc.Conflict.Errorf("another came first") },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var log journal
		config := ours.config()
		config.Logger = log.logger()
		config.Services = func(r grpc.ServiceRegistrar) {
			nstancev1.RegisterAgentServiceServer(r, submitter{end: func(c context.Context) error { return end(c, cancel) }})
		}
		client := nstancev1.NewAgentServiceClient(ours.dial(serve(t, config), ours.agent(time.Hour)))
		if _, err := client.SubmitPublicKeys(ctx, &nstancev1.SubmitPublicKeysRequest{}); err == nil {
			t.Fatalf("%s: the call was answered", want)
		}
		line := log.awaitLines(t, want, 1)[0]
		if wanted, _ := line["wanted"].(map[string]any); line["object"] != "instance "+instanceID || wanted["key"] != "a -> b" {
			t.Errorf("the line says %v", line)
		}
	}
}

// submitting accepts public keys, and notes them.
func submitting(r grpc.ServiceRegistrar) { nstancev1.RegisterAgentServiceServer(r, submitter{}) }

type submitter struct {
	nstancev1.UnimplementedAgentServiceServer
	end func(context.Context) error // nil: success
}

func (s submitter) SubmitPublicKeys(
	ctx context.Context, _ *nstancev1.SubmitPublicKeysRequest,
) (*nstancev1.SubmitPublicKeysResponse, error) {
	audit.On(ctx, "instance "+instanceID)
	audit.Wanted(ctx, audit.Detail{Name: "key", From: "a", To: "b"})
	if s.end != nil {
		return nil, s.end(ctx)
	}
	return &nstancev1.SubmitPublicKeysResponse{}, nil
}
