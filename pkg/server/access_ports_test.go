package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/election"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// post sends a request to a server; pair nil: without a certificate.
func (s *site) post(addr, method, path string, pair *pki.Keypair, body io.Reader) (*http.Response, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	s.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, "https://"+addr+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Te", "trailers")
	e := pki.Endpoint{Cluster: clusterID, Source: pki.NewSource(s.trust().Bundle, pair), Now: time.Now}
	connect := func(ctx context.Context, _, addr string) (net.Conn, error) { return s.connect(ctx, addr) }
	transport := &http.Transport{DialContext: connect, TLSClientConfig: e.Client("127.0.0.1", shardID), ForceAttemptHTTP2: true}
	s.t.Cleanup(transport.CloseIdleConnections)
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	s.t.Cleanup(func() { answer.Body.Close() })
	return answer, nil
}

// TestAccessToLeader: the election address serves only servers of the shard. All others fail
// at the handshake.
func TestAccessToLeader(t *testing.T) {
	const ready = `{"server":"b","leader":"a","ask":1,"ready":true}` // to no question, so it changes nothing
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		who := s.callers(p)
		for _, c := range []struct {
			who  string
			pair *pki.Keypair
			ok   bool
		}{
			{who: "no certificate", pair: who.none},
			{who: "a certificate of another CA", pair: who.otherCA},
			{who: "an agent", pair: who.agent},
			{who: "an operator", pair: who.operator},
			{who: "a server", pair: who.server, ok: true},
			{who: "a server of another shard", pair: s.serverOf("dev-2")},
			{who: "an expired certificate", pair: who.expired},
			{who: "another cluster's certificate", pair: who.otherCluster},
			{who: "the agent of a deleted instance", pair: who.deleted},
			{who: "another tenant's operator", pair: who.otherTenant},
			{who: "an operator that was removed", pair: who.removed},
			{who: "an operator without a record", pair: who.unrecorded},
			{who: "an operator of a tenant that is not declared", pair: who.undeclared},
		} {
			for _, r := range []struct {
				method, path, body string
				want               int
			}{
				{http.MethodGet, election.LeaderPath, "", http.StatusOK},
				{http.MethodPost, election.ReadyPath, ready, http.StatusNoContent},
			} {
				answer, err := s.post(p.addr("serving", "election"), r.method, r.path, c.pair, strings.NewReader(r.body))
				if (err == nil) != c.ok || c.ok && answer.StatusCode != r.want {
					t.Errorf("%s: %s %s: %v, %v", c.who, r.method, r.path, answer, err)
				}
			}
		}
	})
}

// TestElectionPaths: the election address serves two requests, and refuses all others of a
// server of the shard with their status.
func TestElectionPaths(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		pair := s.serverOf(shardID)
		for request, want := range map[string]int{
			"POST /leader": http.StatusMethodNotAllowed, "PUT /leader": http.StatusMethodNotAllowed, "HEAD /leader": http.StatusMethodNotAllowed,
			"GET /ready": http.StatusMethodNotAllowed, "HEAD /ready": http.StatusMethodNotAllowed, "DELETE /ready": http.StatusMethodNotAllowed,
			"POST /ready": http.StatusBadRequest, // without an answer
			"GET /":       http.StatusNotFound, "POST /": http.StatusNotFound, "OPTIONS /": http.StatusNotFound,
			"GET /leader/": http.StatusNotFound, "POST /ready/a": http.StatusNotFound, "GET /metrics": http.StatusNotFound,
		} {
			method, path, _ := strings.Cut(request, " ")
			answer, err := s.post(p.addr("serving", "election"), method, path, pair, http.NoBody)
			if err != nil || answer.StatusCode != want {
				t.Errorf("%s: %v, %v, want %d", request, answer, err, want)
			}
		}
	})
}

// TestUnfinishedMessages: an incomplete message does not keep its call open on any port of
// gRPC, except in the health stream of a live instance's agent. Unauthorized callers are refused
// without it. Of the ports of HTTP, TestUnfinishedRequests.
func TestUnfinishedMessages(t *testing.T) {
	const late, denied, unauthenticated = "4", "7", "16" // gRPC's codes
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		who := s.callers(p)
		for _, c := range []struct {
			name, addr, method string
			pair               *pki.Keypair
			want               string
		}{
			{"a stranger", p.registrationAddr(), nstancev1.RegistrationService_RegisterAgent_FullMethodName, nil, late},
			{"an agent", p.agentAddr(), nstancev1.AgentService_SubmitPublicKeys_FullMethodName, who.agent, late},
			{"an operator for agents", p.agentAddr(), nstancev1.AgentService_SubmitPublicKeys_FullMethodName, who.operator, denied},
			{"a deleted agent", p.agentAddr(), nstancev1.AgentService_SubmitPublicKeys_FullMethodName, who.deleted, unauthenticated},
			{"an operator", p.operatorAddr(), nstancev1.OperatorService_UpsertGroup_FullMethodName, who.operator, late},
			{"an agent for operators", p.operatorAddr(), nstancev1.OperatorService_UpsertGroup_FullMethodName, who.agent, denied},
			{"a removed operator", p.operatorAddr(), nstancev1.OperatorService_UpsertGroup_FullMethodName, who.removed, unauthenticated},
		} {
			body, message := io.Pipe()
			go func() { _, _ = message.Write([]byte{0, 0, 0, 0x3f, 0xff, 1, 2, 3}) }() // 3 bytes of 16383
			began := time.Now()
			answer, err := s.post(c.addr, http.MethodPost, c.method, c.pair, body)
			took := time.Since(began)
			message.Close()
			if err != nil || answer.Header.Get("Grpc-Status") != c.want {
				t.Errorf("%s: %v, %v, want grpc-status %s", c.name, answer, err, c.want)
			}
			if (c.want == late) != (took > time.Second) {
				t.Errorf("%s is answered after %s", c.name, took)
			}
		}
	})
}
