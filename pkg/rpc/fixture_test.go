package rpc_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	cluster    = "example"
	shard      = "dev-1"
	patience   = time.Minute // for what takes milliseconds unless it hangs
	instanceID = "knd01h455vb4pex5vsknk084sn02q"
	operatorID = "opr01h455vb4pex5vsknk084sn02q"

	otherInstance = "knd01h455vb4pex5vsknk084sn02r"
	otherOperator = "opr01h455vb4pex5vsknk084sn02r"
)

// clock is a time controlled by a test.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time          { return time.Now().Add(time.Duration(c.offset.Load())) }
func (c *clock) advance(d time.Duration) { c.offset.Add(int64(d)) }

// authority is a cluster's CA and everything that tests make with it.
type authority struct {
	t     *testing.T
	ca    *pki.CA
	clock *clock
}

func newAuthority(t *testing.T, cluster string) *authority {
	t.Helper()
	return authorityWithKey(t, cluster, must(pki.GenerateKey(rand.Reader))(t))
}

func authorityWithKey(t *testing.T, cluster string, key []byte) *authority {
	t.Helper()
	c := &clock{}
	ca := must(pki.NewCA(pki.CAConfig{Cluster: cluster, Key: key, Now: c.now(), Random: rand.Reader}))(t)
	return &authority{t: t, ca: ca, clock: c}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (a *authority) endpoint(keypair *pki.Keypair) pki.Endpoint {
	source := pki.NewSource(pki.NewBundle(a.ca.Certificate()), keypair)
	return pki.Endpoint{Cluster: cluster, Source: source, Now: a.clock.now}
}

func (a *authority) agent(ttl time.Duration) *pki.Keypair {
	return a.keypair(a.ca.IssueAgent, instanceID, ttl)
}

func (a *authority) agentNamed(id string) *pki.Keypair {
	return a.keypair(a.ca.IssueAgent, id, time.Hour)
}

func (a *authority) operator(ttl time.Duration) *pki.Keypair {
	return a.keypair(a.ca.IssueOperator, operatorID, ttl)
}

func (a *authority) operatorNamed(id string) *pki.Keypair {
	return a.keypair(a.ca.IssueOperator, id, time.Hour)
}

type issuer func(pki.ClientRequest, io.Reader) (*x509.Certificate, error)

func (a *authority) keypair(issue issuer, id string, ttl time.Duration) *pki.Keypair {
	key := must(pki.GenerateKey(rand.Reader))(a.t)
	cert := must(issue(pki.ClientRequest{
		Tenant: "default", ID: id, PublicKey: pki.PublicKey(key), Now: a.clock.now(), TTL: ttl,
	}, rand.Reader))(a.t)
	return must(pki.NewKeypair(cert, key))(a.t)
}

func (a *authority) server(shard string) *pki.Keypair {
	key := must(pki.GenerateKey(rand.Reader))(a.t)
	cert := must(a.ca.IssueServer(pki.ServerRequest{
		Shard: shard, DNS: []string{"localhost"}, IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
		PublicKey: pki.PublicKey(key), Now: a.clock.now(), TTL: 24 * time.Hour,
	}, rand.Reader))(a.t)
	return must(pki.NewKeypair(cert, key))(a.t)
}

// seat is a Gate controlled by a test.
type seat struct {
	mu     sync.Mutex
	leader string
	leads  bool
}

func (s *seat) Leading() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leader, s.leads
}

func (s *seat) set(leads bool, leader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leads, s.leader = leads, leader
}

// judge is a Judge controlled by a test; look is called only for callers that known does not
// know.
type judge struct {
	known func(pki.Caller) (error, bool)
	look  func(context.Context, pki.Caller) error
}

func (j judge) Known(c pki.Caller) (verdict error, ok bool) {
	if j.known == nil {
		return nil, false
	}
	return j.known(c)
}

func (j judge) Verify(ctx context.Context, c pki.Caller) error { return j.look(ctx, c) }

// stubs registers all three services; every method returns UNIMPLEMENTED from its handler,
// unless replaced.
func stubs(r grpc.ServiceRegistrar) {
	nstancev1.RegisterRegistrationServiceServer(r, nstancev1.UnimplementedRegistrationServiceServer{})
	nstancev1.RegisterAgentServiceServer(r, nstancev1.UnimplementedAgentServiceServer{})
	nstancev1.RegisterOperatorServiceServer(r, nstancev1.UnimplementedOperatorServiceServer{})
}

func (a *authority) config() rpc.ServerConfig {
	return rpc.ServerConfig{
		TLS: a.endpoint(a.server(shard)).Server(), Cluster: cluster, Access: rpc.Access(),
		Services: stubs, Gate: &seat{leads: true}, Now: a.clock.now, Logger: discard(),
	}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// serve runs a server on loopback until the test ends and returns its address.
func serve(t *testing.T, c rpc.ServerConfig) string {
	t.Helper()
	listener := must(rpc.Listen(t.Context(), "test", "127.0.0.1:0", rpc.Conns{}))(t)
	return serveOn(t, c, listener)
}

func serveOn(t *testing.T, c rpc.ServerConfig, listener net.Listener) string {
	t.Helper()
	server := must(rpc.NewServer(c))(t)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return listener.Addr().String()
}

// serveInside is serve in simulated time, which stands still while a socket is waited for: the
// listener has none.
func serveInside(t *testing.T, c rpc.ServerConfig) *bufconn.Listener {
	t.Helper()
	listener := bufconn.Listen(64 << 10)
	serveOn(t, c, listener)
	return listener
}

// dialInside is dial of what serveInside serves.
func (a *authority) dialInside(listener *bufconn.Listener, keypair *pki.Keypair) *grpc.ClientConn {
	a.t.Helper()
	client := must(rpc.NewClient(rpc.ClientConfig{
		Addrs: []string{"127.0.0.1:1"}, TLS: clientTLS(a.endpoint(keypair)), Random: func() float64 { return 0 },
		Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) },
	}))(a.t)
	a.t.Cleanup(client.Close)
	return must(client.Target())(a.t).Conn
}

func (a *authority) client(addrs string, keypair *pki.Keypair) *rpc.Client {
	a.t.Helper()
	endpoint := a.endpoint(keypair)
	client := must(rpc.NewClient(rpc.ClientConfig{
		Addrs:  must(rpc.ParseAddrs("test", addrs))(a.t),
		TLS:    clientTLS(endpoint),
		Random: func() float64 { return 0 },
	}))(a.t)
	a.t.Cleanup(client.Close)
	return client
}

func (a *authority) dial(addr string, keypair *pki.Keypair) *grpc.ClientConn {
	a.t.Helper()
	return must(a.client(addr, keypair).Target())(a.t).Conn
}

func listGroups(ctx context.Context, conn grpc.ClientConnInterface) error {
	_, err := nstancev1.NewOperatorServiceClient(conn).ListGroups(ctx, &nstancev1.ListGroupsRequest{})
	return err
}

func clientTLS(endpoint pki.Endpoint) func(string) *tls.Config {
	return func(host string) *tls.Config { return endpoint.Client(host, shard) }
}

// elsewhere is a listener whose connections have a remote address of another machine.
func elsewhere(l net.Listener) net.Listener {
	return fromAddr{Listener: l, from: func() net.Addr { return tcp("203.0.113.7") }}
}

func registers(t *testing.T, conn *grpc.ClientConn) error {
	t.Helper()
	_, err := nstancev1.NewRegistrationServiceClient(conn).RegisterAgent(t.Context(), &nstancev1.RegisterAgentRequest{})
	return err
}
