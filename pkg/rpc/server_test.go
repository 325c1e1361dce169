package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// groups is an OperatorService whose ListGroups is set by a test.
type groups struct {
	nstancev1.UnimplementedOperatorServiceServer
	list func(context.Context) (*nstancev1.ListGroupsResponse, error)
}

func (g groups) ListGroups(ctx context.Context, _ *nstancev1.ListGroupsRequest) (*nstancev1.ListGroupsResponse, error) {
	return g.list(ctx)
}

func serving(list func(context.Context) (*nstancev1.ListGroupsResponse, error)) func(grpc.ServiceRegistrar) {
	return func(r grpc.ServiceRegistrar) { nstancev1.RegisterOperatorServiceServer(r, groups{list: list}) }
}

func TestHandlerKnowsItsCaller(t *testing.T) {
	ours := newAuthority(t, cluster)
	config := ours.config()
	config.Services = serving(func(ctx context.Context) (*nstancev1.ListGroupsResponse, error) {
		caller, ok := rpc.CallerFrom(ctx)
		if !ok || caller.Role != pki.RoleOperator || caller.ID != operatorID || caller.Tenant != "default" {
			return nil, fmt.Errorf("caller %+v, %v", caller, ok)
		}
		return &nstancev1.ListGroupsResponse{}, nil
	})
	if err := listGroups(t.Context(), ours.dial(serve(t, config), ours.operator(time.Hour))); err != nil {
		t.Fatal(err)
	}
}

func TestPanicIsInternalAndTheServerGoesOn(t *testing.T) {
	ours := newAuthority(t, cluster)
	var log bytes.Buffer
	config := ours.config()
	config.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	calls := 0
	config.Services = serving(func(context.Context) (*nstancev1.ListGroupsResponse, error) {
		if calls++; calls == 1 {
			var nothing *groups
			nothing.list = nil
		}
		return &nstancev1.ListGroupsResponse{}, nil
	})
	conn := ours.dial(serve(t, config), ours.operator(time.Hour))
	if err := listGroups(t.Context(), conn); status.Code(err) != codes.Internal {
		t.Fatalf("the panic answered %v, want INTERNAL", err)
	}
	if err := listGroups(t.Context(), conn); err != nil {
		t.Fatalf("the call after the panic: %v", err)
	}
	if !strings.Contains(log.String(), "nil pointer") || !strings.Contains(log.String(), "server_test.go") {
		t.Errorf("the log tells neither the panic nor its place: %s", log.String())
	}
}

func TestHugeMessage(t *testing.T) {
	ours := newAuthority(t, cluster)
	config := ours.config()
	config.Debug = true
	addr := serve(t, config)
	conn, other := ours.dial(addr, ours.operator(time.Hour)), ours.dial(addr, ours.operator(time.Hour))
	watch, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list := &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}
	if err := watch.Send(list); err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	watched := make(chan error, 1)
	go func() { _, err := watch.Recv(); watched <- err }()

	huge := strings.Repeat("x", 100<<20)
	answer := make(chan error, 1)
	go func() {
		_, err := nstancev1.NewOperatorServiceClient(conn).UpsertGroup(t.Context(), &nstancev1.UpsertGroupRequest{Key: huge})
		answer <- err
	}()
	if err := listGroups(t.Context(), other); status.Code(err) != codes.Unimplemented {
		t.Errorf("a call beside it: %v", err)
	}
	if err := <-answer; status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("100 MB answered %v, want RESOURCE_EXHAUSTED", err)
	}
	if err := listGroups(t.Context(), conn); status.Code(err) != codes.Unimplemented {
		t.Errorf("the next call on the same connection: %v", err)
	}
	select {
	case err := <-watched:
		t.Errorf("a stream of the same connection ended: %v", err)
	default:
	}
}

func TestMessageLimits(t *testing.T) {
	ours := newAuthority(t, cluster)
	for _, c := range []struct {
		name   string
		limits rpc.Limits
		size   int
		want   codes.Code
	}{
		{"default, below", rpc.Limits{}, 64<<10 - 100, codes.Unimplemented},
		{"default, above", rpc.Limits{}, 64<<10 + 1, codes.ResourceExhausted},
		{"registration, below", rpc.RegistrationLimits(), 16<<10 - 100, codes.Unimplemented},
		{"registration, above", rpc.RegistrationLimits(), 16<<10 + 1, codes.ResourceExhausted},
		{"operator, below", rpc.OperatorLimits(), 1<<20 - 100, codes.Unimplemented},
		{"operator, above", rpc.OperatorLimits(), 1<<20 + 1, codes.ResourceExhausted},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := ours.config()
			config.Limits = c.limits
			operator := nstancev1.NewOperatorServiceClient(ours.dial(serve(t, config), ours.operator(time.Hour)))
			_, err := operator.UpsertGroup(t.Context(), &nstancev1.UpsertGroupRequest{Key: strings.Repeat("x", c.size)})
			if status.Code(err) != c.want {
				t.Errorf("%d bytes answered %v, want %s", c.size, status.Code(err), c.want)
			}
		})
	}
}

func TestHugeMetadata(t *testing.T) {
	ours := newAuthority(t, cluster)
	conn := ours.dial(serve(t, ours.config()), ours.operator(time.Hour))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-big", strings.Repeat("x", 64<<10))
	if err := listGroups(ctx, conn); status.Code(err) == codes.Unimplemented {
		t.Fatal("64 KiB of metadata reached the handler")
	}
	if err := listGroups(t.Context(), conn); status.Code(err) != codes.Unimplemented {
		t.Fatalf("the next call: %v", err)
	}
}

func TestGate(t *testing.T) {
	ours := newAuthority(t, cluster)
	gate := &seat{leader: "10.0.0.9:8993"}
	config := ours.config()
	config.Gate = gate
	asked := false
	config.Judge = judge{known: func(pki.Caller) (error, bool) { asked = true; return nil, true }}
	conn := ours.dial(serve(t, config), ours.operator(time.Hour))

	err := listGroups(t.Context(), conn)
	addr, ok := rpc.NotLeader(err)
	if status.Code(err) != codes.Unavailable || !ok || addr != "10.0.0.9:8993" {
		t.Fatalf("got %v, which names %q, %v", err, addr, ok)
	}
	if asked {
		t.Error("a server that does not lead judged the certificate by records that may be old")
	}
	gate.set(false, "")
	if addr, ok := rpc.NotLeader(listGroups(t.Context(), conn)); !ok || addr != "" {
		t.Fatalf("without a leader: %q, %v", addr, ok)
	}
	for _, m := range methods() {
		if rpc.Access()[m.name].Who == rpc.Anyone && !m.ours() {
			if err := m.call(t.Context(), conn); err != nil {
				t.Errorf("%s on a server that does not lead: %v", m.name, err)
			}
		}
	}
}

// TestOutage: while object storage does not answer, each call that changes something is refused
// before anything is done, and every other one is served. A server that knows no leader says why.
func TestOutage(t *testing.T) {
	ours := newAuthority(t, cluster)
	gate := &seat{leads: true}
	config := ours.config()
	config.Gate, config.Outage = gate, func() string { return "object storage is away" }
	addr := serve(t, config)
	conns := map[rpc.Who]*grpc.ClientConn{
		rpc.Agent: ours.dial(addr, ours.agent(time.Hour)), rpc.Operator: ours.dial(addr, ours.operator(time.Hour)),
	}
	conns[rpc.Anyone] = conns[rpc.Operator]
	for _, m := range methods() {
		if !m.ours() {
			continue
		}
		err := m.call(t.Context(), conns[rpc.Access()[m.name].Who])
		_, changes := rpc.Audited()[m.name]
		want := codes.Unimplemented
		if changes {
			want = codes.Unavailable
		}
		said := status.Convert(err).Message() == "object storage is away; nothing was changed: try again later"
		if status.Code(err) != want || changes != said || changes != rpc.Outage(err) {
			t.Errorf("%s: %v", m.name, err)
		}
	}
	if err := listGroups(t.Context(), conns[rpc.Agent]); status.Code(err) != codes.PermissionDenied {
		t.Errorf("an agent that lists groups: %v", err)
	}
	for leader, said := range map[string]string{
		"": "object storage is away; nothing was changed: try again later", "10.0.0.9:8993": "use 10.0.0.9:8993", // which may be well
	} {
		gate.set(false, leader)
		err := listGroups(t.Context(), conns[rpc.Operator])
		addr, ok := rpc.NotLeader(err)
		if !ok || addr != leader || rpc.Outage(err) == (leader != "") || !strings.HasSuffix(err.Error(), ": "+said) {
			t.Errorf("a server that does not lead: %v, which names %q, %v", err, addr, ok)
		}
	}
}

func TestRevoked(t *testing.T) {
	ours := newAuthority(t, cluster)
	for _, c := range []struct {
		name    string
		err     error
		want    codes.Code
		revoked bool
	}{
		{"welcome", nil, codes.Unimplemented, false},
		{"deleting", rpc.CertificateRevoked.Errorf("instance %s is deleting", instanceID), codes.Unauthenticated, true},
		{"can't tell", rpc.Unavailable.Errorf("object storage does not answer"), codes.Unavailable, false},
		{"of no kind", errors.New("a secret path"), codes.Internal, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := ours.config()
			config.Judge = judge{known: func(caller pki.Caller) (error, bool) {
				if caller.ID != instanceID {
					t.Errorf("asked about %+v", caller)
				}
				return c.err, true
			}}
			conn := ours.dial(serve(t, config), ours.agent(time.Hour))
			_, err := nstancev1.NewAgentServiceClient(conn).SubmitPublicKeys(t.Context(), &nstancev1.SubmitPublicKeysRequest{})
			if status.Code(err) != c.want || rpc.Revoked(err) != c.revoked || strings.Contains(err.Error(), "secret") {
				t.Errorf("unary answered %v", err)
			}
			stream, err := nstancev1.NewAgentServiceClient(conn).KeyGenRequests(t.Context(), &nstancev1.KeyGenRequestsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); status.Code(err) != c.want || rpc.Revoked(err) != c.revoked {
				t.Errorf("stream answered %v", err)
			}
		})
	}
}

func TestReflectionOnlyWithDebug(t *testing.T) {
	ours := newAuthority(t, cluster)
	for _, debug := range []bool{false, true} {
		config := ours.config()
		config.Debug = debug
		conn := ours.dial(serve(t, config), ours.operator(time.Hour))
		stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// The refusal may arrive before the request is sent; Recv returns it in either case.
		_ = stream.Send(&reflectionv1.ServerReflectionRequest{
			MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
		})
		_, err = stream.Recv()
		if want := map[bool]codes.Code{false: codes.Unimplemented, true: codes.OK}[debug]; status.Code(err) != want {
			t.Errorf("debug %v: %v, want %s", debug, err, want)
		}
	}
}

// fromAddr is a listener whose connections have another remote address.
type fromAddr struct {
	net.Listener
	from func() net.Addr
}

func (l fromAddr) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return addrConn{Conn: conn, from: l.from()}, nil
}

type addrConn struct {
	net.Conn
	from net.Addr
}

func (c addrConn) RemoteAddr() net.Addr { return c.from }

func tcp(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 40000} }

// registering serves registration to callers with the address from, with a burst of three
// calls and one a second.
func (a *authority) registering(from func() net.Addr) func() error {
	a.t.Helper()
	config := a.config()
	config.TLS = a.endpoint(a.server(shard)).RegistrationServer()
	config.Limits.PerSource = rpc.Rate{PerSecond: 1, Burst: 3}
	frozen := a.clock.offset.Load()
	start := a.clock.now()
	config.Now = func() time.Time { return start.Add(time.Duration(a.clock.offset.Load() - frozen)) }
	inner := must(rpc.Listen(a.t.Context(), "test", "127.0.0.1:0", rpc.Conns{}))(a.t)
	addr := serveOn(a.t, config, fromAddr{Listener: inner, from: from})
	return func() error {
		conn := a.client(addr, nil)
		defer conn.Close()
		target := must(conn.Target())(a.t)
		_, err := nstancev1.NewRegistrationServiceClient(target.Conn).RegisterAgent(a.t.Context(), &nstancev1.RegisterAgentRequest{})
		return err
	}
}

func expect(t *testing.T, register func() error, n int, want codes.Code) {
	t.Helper()
	for range n {
		if err := register(); status.Code(err) != want {
			t.Fatalf("got %v, want %s", err, want)
		}
	}
}

func TestRateLimitPerSource(t *testing.T) {
	ours := newAuthority(t, cluster)
	var source atomic.Value
	source.Store("203.0.113.7")
	register := ours.registering(func() net.Addr { return tcp(source.Load().(string)) })
	expect(t, register, 3, codes.Unimplemented)
	expect(t, register, 1, codes.ResourceExhausted)
	source.Store("203.0.113.8")
	expect(t, register, 3, codes.Unimplemented)
	source.Store("203.0.113.7")
	expect(t, register, 1, codes.ResourceExhausted)
	ours.clock.advance(2 * time.Second)
	expect(t, register, 2, codes.Unimplemented)
	expect(t, register, 1, codes.ResourceExhausted)
}

func TestRateLimitCountsAnIPv6Network(t *testing.T) {
	ours := newAuthority(t, cluster)
	host := 0
	register := ours.registering(func() net.Addr { host++; return tcp(fmt.Sprintf("2001:db8::%x", host)) })
	expect(t, register, 3, codes.Unimplemented)
	expect(t, register, 1, codes.ResourceExhausted)
}

func TestRateLimitExemptsLoopback(t *testing.T) {
	ours := newAuthority(t, cluster)
	for _, ip := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.1"} {
		expect(t, ours.registering(func() net.Addr { return tcp(ip) }), 5, codes.Unimplemented)
	}
}

func TestRegistrationRate(t *testing.T) {
	if got := rpc.RegistrationRate(); got != (rpc.Rate{PerSecond: 50, Burst: 500}) {
		t.Fatalf("registration rate %+v", got)
	}
}
