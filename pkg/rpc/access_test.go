package rpc_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// method is one RPC as its .proto file declares it.
type method struct {
	name string // full name
	desc grpc.StreamDesc
}

func methods() []method {
	var all []method
	for _, file := range []protoreflect.FileDescriptor{
		nstancev1.File_nstance_v1_registration_proto, nstancev1.File_nstance_v1_agent_proto,
		nstancev1.File_nstance_v1_operator_proto, healthv1.File_grpc_health_v1_health_proto,
	} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				all = append(all, method{
					name: "/" + string(service.FullName()) + "/" + string(m.Name()),
					desc: grpc.StreamDesc{ClientStreams: m.IsStreamingClient(), ServerStreams: m.IsStreamingServer()},
				})
			}
		}
	}
	return all
}

func (m method) ours() bool { return strings.HasPrefix(m.name, "/nstance.v1.") }

// call sends one empty message, which is a valid message of every type.
func (m method) call(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := conn.NewStream(ctx, &m.desc, m.name)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&emptypb.Empty{}); err != nil {
		return stream.RecvMsg(&emptypb.Empty{})
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return stream.RecvMsg(&emptypb.Empty{})
}

func TestEveryMethodHasARow(t *testing.T) {
	access := rpc.Access()
	if n := len(methods()); n < 21 {
		t.Fatalf("the descriptors list %d methods: the walk over them is broken", n)
	}
	for _, m := range methods() {
		rule, ok := access[m.name]
		if !ok || m.ours() && rule.Who == rpc.Nobody {
			t.Errorf("%s has no row in the access table that lets a caller in", m.name)
		}
		if m.ours() && !rule.LeaderOnly {
			t.Errorf("%s can be answered by a server that does not lead", m.name)
		}
	}
}

func TestRowsFollowTheServices(t *testing.T) {
	want := map[string]rpc.Who{
		"/nstance.v1.RegistrationService/": rpc.Anyone,
		"/nstance.v1.AgentService/":        rpc.Agent,
		"/nstance.v1.OperatorService/":     rpc.Operator,
		"/grpc.health.v1.Health/":          rpc.Anyone,
	}
	for _, m := range methods() {
		service := m.name[:strings.LastIndexByte(m.name, '/')+1]
		want := want[service]
		if !m.ours() && m.name != healthv1.Health_Check_FullMethodName {
			want = rpc.Nobody
		}
		if got := rpc.Access()[m.name].Who; got != want {
			t.Errorf("%s may be called by %s, want %s", m.name, got, want)
		}
	}
}

// admitted returns the answer of a stub's handler, or of the health service on the whole
// server.
func admitted(m method, err error) bool {
	if m.ours() {
		return status.Code(err) == codes.Unimplemented
	}
	return err == nil
}

// TestAuthorization calls every RPC with every identity. A listener that requires certificates
// refuses unverifiable ones in the handshake, which the caller sees as UNAVAILABLE.
func TestAuthorization(t *testing.T) {
	ours := newAuthority(t, cluster)
	otherCA := newAuthority(t, cluster)
	mutual := serve(t, ours.config())
	anonymous := ours.config()
	anonymous.TLS = ours.endpoint(ours.server(shard)).RegistrationServer()
	open := serve(t, anonymous)

	expired := ours.agent(time.Second)
	expiredOperator := ours.operator(time.Second)
	ours.clock.advance(time.Minute)

	// Signed by this cluster's CA key, with the name of another cluster.
	otherCluster := newAuthority(t, "elsewhere")
	otherCluster.clock = ours.clock

	cases := []struct {
		name    string
		addr    string
		keypair *pki.Keypair
		want    map[rpc.Who]codes.Code // OK: admitted
	}{
		{"agent", mutual, ours.agent(time.Hour), map[rpc.Who]codes.Code{rpc.Agent: codes.OK, rpc.Operator: codes.PermissionDenied,
			rpc.Anyone: codes.OK}},
		{"operator", mutual, ours.operator(time.Hour), map[rpc.Who]codes.Code{rpc.Agent: codes.PermissionDenied, rpc.Operator: codes.OK,
			rpc.Anyone: codes.OK}},
		{"server", mutual, ours.server(shard), map[rpc.Who]codes.Code{rpc.Agent: codes.PermissionDenied, rpc.Operator: codes.PermissionDenied,
			rpc.Anyone: codes.OK}},
		{"none, none asked for", open, nil, map[rpc.Who]codes.Code{rpc.Agent: codes.Unauthenticated, rpc.Operator: codes.Unauthenticated,
			rpc.Anyone: codes.OK}},
		{"none", mutual, nil, turnedAway()},
		{"agent of another CA", mutual, otherCA.agent(time.Hour), turnedAway()},
		{"operator of another CA", mutual, otherCA.operator(time.Hour), turnedAway()},
		{"server of another CA", mutual, otherCA.server(shard), turnedAway()},
		{"agent of another cluster", mutual, otherCluster.agent(time.Hour), turnedAway()},
		{"operator of another cluster", mutual, otherCluster.operator(time.Hour), turnedAway()},
		{"expired agent", mutual, expired, turnedAway()},
		{"expired operator", mutual, expiredOperator, turnedAway()},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			conn := ours.dial(c.addr, c.keypair)
			for _, m := range methods() {
				want := c.want[rpc.Access()[m.name].Who]
				if rpc.Access()[m.name].Who == rpc.Nobody && c.want[rpc.Anyone] == codes.OK {
					want = codes.Unimplemented
				} else if rpc.Access()[m.name].Who == rpc.Nobody {
					want = c.want[rpc.Anyone]
				}
				err := m.call(t.Context(), conn)
				if want == codes.OK && !admitted(m, err) || want != codes.OK && status.Code(err) != want {
					t.Errorf("%s answered %v, want %s", m.name, err, want)
				}
			}
		})
	}
}

func turnedAway() map[rpc.Who]codes.Code {
	return map[rpc.Who]codes.Code{rpc.Agent: codes.Unavailable, rpc.Operator: codes.Unavailable, rpc.Anyone: codes.Unavailable}
}

// TestOtherClusterOfTheSameCA: if two clusters share a CA key, the chain is valid, and only
// the SPIFFE ID distinguishes them.
func TestOtherClusterOfTheSameCA(t *testing.T) {
	key := must(pki.GenerateKey(zeroes{}))(t)
	ours, other := authorityWithKey(t, cluster, key), authorityWithKey(t, "elsewhere", key)
	bundle := pki.NewBundle(ours.ca.Certificate(), other.ca.Certificate())
	config := ours.config()
	config.TLS = pki.Endpoint{Cluster: "elsewhere", Now: ours.clock.now, Source: pki.NewSource(bundle, ours.server(shard))}.Server()
	addr := serve(t, config)
	for _, m := range methods() {
		// The handshake uses the other cluster's ID, so only the guard can refuse.
		if err := m.call(t.Context(), ours.dial(addr, other.agent(time.Hour))); status.Code(err) != codes.Unauthenticated {
			t.Fatalf("%s answered %v, want UNAUTHENTICATED", m.name, err)
		}
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestCertificateThatExpiresOnAnOpenConnection(t *testing.T) {
	ours := newAuthority(t, cluster)
	conn := ours.dial(serve(t, ours.config()), ours.operator(time.Hour))
	if err := listGroups(t.Context(), conn); status.Code(err) != codes.Unimplemented {
		t.Fatalf("before: %v", err)
	}
	ours.clock.advance(2 * time.Hour)
	err := listGroups(t.Context(), conn)
	if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "expired") {
		t.Fatalf("after: %v, want UNAUTHENTICATED that says expired", err)
	}
}

func TestNewServerRefusesAMethodWithoutRow(t *testing.T) {
	config := newAuthority(t, cluster).config()
	delete(config.Access, nstancev1.AgentService_ReportHealth_FullMethodName)
	_, err := rpc.NewServer(config)
	if err == nil || !strings.Contains(err.Error(), "ReportHealth") {
		t.Fatalf("got %v, want an error that names ReportHealth", err)
	}
}

func TestNewServerRefusesLeaderOnlyMethodsWithoutGate(t *testing.T) {
	config := newAuthority(t, cluster).config()
	config.Gate = nil
	if _, err := rpc.NewServer(config); err == nil {
		t.Fatal("a server without a gate was made")
	}
}
