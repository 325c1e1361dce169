package rpc_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// announced makes a call without ever sending its message, and returns the answer:
// DEADLINE_EXCEEDED if the server waits for the message first.
func announced(t *testing.T, conn *grpc.ClientConn, method string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	return stream.RecvMsg(&emptypb.Empty{})
}

// TestRefusedBeforeTheMessage: an unauthorized caller is refused before its message arrives,
// for every kind of call.
func TestRefusedBeforeTheMessage(t *testing.T) {
	ours := newAuthority(t, cluster)
	revoked := rpc.CertificateRevoked.Errorf("instance %s is deleted", instanceID)
	standby := ours.config()
	standby.Gate = &seat{leader: "10.0.0.9:8993"}
	known, looked, aged := ours.config(), ours.config(), ours.config()
	known.Judge = judge{known: func(pki.Caller) (error, bool) { return revoked, true }}
	looked.Judge = judge{look: func(context.Context, pki.Caller) error { return revoked }}
	expiring := ours.agent(time.Minute)
	old := ours.dial(serve(t, aged), expiring)
	if _, err := healthv1.NewHealthClient(old).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	none := ours.config()
	none.TLS = ours.endpoint(ours.server(shard)).RegistrationServer()

	agent, operator := ours.agent(time.Hour), ours.operator(time.Hour)
	for _, c := range []struct {
		name   string
		conn   *grpc.ClientConn
		prefix string
		want   codes.Code
	}{
		{"agent of a standby", ours.dial(serve(t, standby), agent), "/nstance.v1.AgentService/", codes.Unavailable},
		{"operator of a standby", ours.dial(serve(t, standby), operator), "/nstance.v1.OperatorService/", codes.Unavailable},
		{"agent at the operators' service", ours.dial(serve(t, ours.config()), agent), "/nstance.v1.OperatorService/", codes.PermissionDenied},
		{"operator at the agents' service", ours.dial(serve(t, ours.config()), operator), "/nstance.v1.AgentService/", codes.PermissionDenied},
		{"agent that memory knows as deleted", ours.dial(serve(t, known), agent), "/nstance.v1.AgentService/", codes.Unauthenticated},
		{"agent that the store knows as deleted", ours.dial(serve(t, looked), agent), "/nstance.v1.AgentService/", codes.Unauthenticated},
		{"no certificate", ours.dial(serve(t, none), nil), "/nstance.v1.OperatorService/", codes.Unauthenticated},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, m := range methods() {
				if !strings.HasPrefix(m.name, c.prefix) {
					continue
				}
				err := announced(t, c.conn, m.name)
				if status.Code(err) != c.want {
					t.Errorf("%s answered %v, want %s", m.name, err, c.want)
				}
				if addr, ok := rpc.NotLeader(err); (c.want == codes.Unavailable) != (ok && addr == "10.0.0.9:8993") {
					t.Errorf("%s names %q, %v", m.name, addr, ok)
				}
				if (c.want == codes.Unauthenticated && c.name != "no certificate") != rpc.Revoked(err) {
					t.Errorf("%s says of a revoked certificate: %v", m.name, err)
				}
			}
		})
	}
	ours.clock.advance(time.Hour)
	if err := announced(t, old, nstancev1.AgentService_SubmitPublicKeys_FullMethodName); status.Code(err) != codes.Unauthenticated {
		t.Errorf("an expired certificate's call answered %v", err)
	}
}

// TestUnservedBeforeTheMessage: a method that does not exist, or that no caller may call, is
// refused in the same way.
func TestUnservedBeforeTheMessage(t *testing.T) {
	ours := newAuthority(t, cluster)
	conn := ours.dial(serve(t, ours.config()), ours.operator(time.Hour))
	for _, method := range []string{healthv1.Health_List_FullMethodName, "/nstance.v1.OperatorService/Never", "/never.v1.Service/Never"} {
		if err := announced(t, conn, method); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s answered %v, want UNIMPLEMENTED", method, err)
		}
	}
}

// TestRegistrationRateBeforeTheMessage: calls over the rate limit are refused before their
// messages too.
func TestRegistrationRateBeforeTheMessage(t *testing.T) {
	ours := newAuthority(t, cluster)
	config := ours.config()
	config.TLS = ours.endpoint(ours.server(shard)).RegistrationServer()
	config.Limits.PerSource = rpc.Rate{PerSecond: 1e-6, Burst: 1}
	inner := must(rpc.Listen(t.Context(), "test", "127.0.0.1:0", rpc.Conns{}))(t)
	conn := ours.dial(serveOn(t, config, elsewhere(inner)), nil)
	if err := registers(t, conn); status.Code(err) != codes.Unimplemented {
		t.Fatalf("the first: %v", err)
	}
	if err := announced(t, conn, nstancev1.RegistrationService_RegisterAgent_FullMethodName); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the second answered %v, want RESOURCE_EXHAUSTED", err)
	}
}

// TestOneLookAtATime: while a caller is looked up in the store, one of its calls is in
// progress and the others wait, unread, on all connections. Other callers are served.
func TestOneLookAtATime(t *testing.T) {
	ours := newAuthority(t, cluster)
	config := ours.config()
	config.Limits.MaxPause = patience
	var looks atomic.Int64
	asked, answer := make(chan struct{}, 100), make(chan struct{})
	var remembered atomic.Bool
	config.Judge = judge{
		known: func(c pki.Caller) (error, bool) { return nil, c.Role == pki.RoleOperator || remembered.Load() },
		look: func(ctx context.Context, _ pki.Caller) error {
			looks.Add(1)
			asked <- struct{}{}
			select {
			case <-answer:
			case <-ctx.Done():
				return ctx.Err()
			}
			remembered.Store(true)
			return nil
		},
	}
	addr := serve(t, config)
	pair := ours.agent(time.Hour)
	ended := make(chan error, 100)
	call := func(conn *grpc.ClientConn) {
		_, err := nstancev1.NewAgentServiceClient(conn).SubmitPublicKeys(t.Context(), &nstancev1.SubmitPublicKeysRequest{})
		ended <- err
	}
	first, second := ours.dial(addr, pair), ours.dial(addr, pair)
	go call(first)
	<-asked
	for range 3 {
		go call(first)
		go call(second)
	}
	if err := listGroups(t.Context(), ours.dial(addr, ours.operator(time.Hour))); status.Code(err) != codes.Unimplemented {
		t.Errorf("another's call: %v", err)
	}
	select {
	case err := <-ended:
		t.Errorf("a call was answered before the store had: %v", err)
	case <-asked:
		t.Error("the store was asked twice at a time")
	case <-time.After(100 * time.Millisecond): // they would take a millisecond
	}
	close(answer)
	for range 7 {
		if err := <-ended; status.Code(err) != codes.Unimplemented {
			t.Errorf("answered %v", err)
		}
	}
	if n := looks.Load(); n != 1 {
		t.Errorf("the store was asked %d times, want once", n)
	}
}

// TestALookThatItsCallerLeaves: a lookup whose caller disconnects ends the wait of the others.
func TestALookThatItsCallerLeaves(t *testing.T) {
	ours := newAuthority(t, cluster)
	config := ours.config()
	config.Limits.MaxPause = patience
	asked := make(chan struct{}, 100)
	config.Judge = judge{look: func(ctx context.Context, _ pki.Caller) error {
		asked <- struct{}{}
		<-ctx.Done()
		return rpc.Unavailable.Errorf("the caller is gone: %w", ctx.Err())
	}}
	conn := ours.dial(serve(t, config), ours.agent(time.Hour))
	for range 3 {
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := nstancev1.NewAgentServiceClient(conn).SubmitPublicKeys(ctx, &nstancev1.SubmitPublicKeysRequest{})
			ended <- err
		}()
		<-asked
		leave()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("answered %v", err)
		}
	}
}

// TestMessageThatNeverEnds: a call with an incomplete message times out, a stream's as well.
func TestMessageThatNeverEnds(t *testing.T) {
	ours := newAuthority(t, cluster)
	for _, c := range []struct {
		method string
		pair   *pki.Keypair
	}{
		{nstancev1.AgentService_SubmitPublicKeys_FullMethodName, ours.agent(time.Hour)},
		{nstancev1.AgentService_KeyGenRequests_FullMethodName, ours.agent(time.Hour)},
		{nstancev1.OperatorService_UpsertGroup_FullMethodName, ours.operator(time.Hour)},
		{nstancev1.OperatorService_WatchGroups_FullMethodName, ours.operator(time.Hour)},
	} {
		config := ours.config()
		config.Limits = rpc.OperatorLimits()
		config.Limits.MessageTimeout = 100 * time.Millisecond
		addr := serve(t, config)
		body, message := io.Pipe()
		go func() { _, _ = message.Write([]byte{0, 0, 0, 0x3f, 0xff, 1, 2, 3}) }() // 3 bytes of 16383
		response, err := ours.post(t, addr, c.pair, c.method, body)
		message.Close()
		if err != nil || response.Header.Get("Grpc-Status") != "4" { // DEADLINE_EXCEEDED
			t.Errorf("%s: %v, %v", c.method, response, err)
		}
	}
}

// post makes a call with the given body, and returns the response headers.
func (a *authority) post(t *testing.T, addr string, pair *pki.Keypair, method string, body io.Reader) (*http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	request := must(http.NewRequestWithContext(ctx, http.MethodPost, "https://"+addr+method, body))(t)
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	transport := &http.Transport{TLSClientConfig: a.endpoint(pair).Client("127.0.0.1", shard), ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { response.Body.Close() })
	return response, nil
}

// TestStreamsOutliveTheMessageTimeout: the timeout only applies to the message.
func TestStreamsOutliveTheMessageTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := newAuthority(t, cluster)
		config := ours.config()
		config.Limits.MessageTimeout, config.Limits.CallTimeout = 50*time.Millisecond, 50*time.Millisecond
		config.Services = func(r grpc.ServiceRegistrar) {
			nstancev1.RegisterAgentServiceServer(r, patient{wait: 300 * time.Millisecond})
		}
		agent := nstancev1.NewAgentServiceClient(ours.dialInside(serveInside(t, config), ours.agent(time.Hour)))
		keys, err := agent.KeyGenRequests(t.Context(), &nstancev1.KeyGenRequestsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := keys.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("a server stream: %v", err)
		}
		reports, err := agent.ReportHealth(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(100 * time.Millisecond) // longer than a message may take, by twice
			if err := reports.Send(&nstancev1.ReportHealthRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := reports.CloseAndRecv(); err != nil {
			t.Errorf("a client stream: %v", err)
		}
		_, err = agent.SubmitPublicKeys(t.Context(), &nstancev1.SubmitPublicKeysRequest{})
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a unary call answered %v, want DEADLINE_EXCEEDED", err)
		}
	})
}

// patient is an AgentService with slow handlers.
type patient struct {
	nstancev1.UnimplementedAgentServiceServer
	wait time.Duration
}

func (p patient) KeyGenRequests(*nstancev1.KeyGenRequestsRequest, nstancev1.AgentService_KeyGenRequestsServer) error {
	time.Sleep(p.wait)
	return nil
}

func (p patient) SubmitPublicKeys(ctx context.Context, _ *nstancev1.SubmitPublicKeysRequest) (*nstancev1.SubmitPublicKeysResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (p patient) ReportHealth(stream nstancev1.AgentService_ReportHealthServer) error {
	for {
		_, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&nstancev1.ReportHealthResponse{})
		}
		if err != nil {
			return err
		}
	}
}
