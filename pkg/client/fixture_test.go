package client_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// fixture is a cluster in one process and in simulated time.
type fixture struct {
	t      *testing.T
	ca     *pki.CA
	source *pki.Source // the client's certificate

	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
}

func withFixture(t *testing.T, test func(*fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ca, err := pki.NewCA(pki.CAConfig{Cluster: "example", Key: newKey(t), Now: time.Now(), Random: rand.Reader})
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{t: t, ca: ca, listeners: map[string]*bufconn.Listener{}}
		f.source = pki.NewSource(pki.NewBundle(ca.Certificate()), f.operator())
		test(f)
	})
}

func newKey(t *testing.T) []byte {
	t.Helper()
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// operator returns a new certificate for the client.
func (f *fixture) operator() *pki.Keypair {
	f.t.Helper()
	key := newKey(f.t)
	r := pki.ClientRequest{Tenant: "default", ID: "opr01h455vb4pex5vsknk084sn02q", PublicKey: pki.PublicKey(key), Now: time.Now(),
		TTL: time.Hour}
	cert, err := f.ca.IssueOperator(r, rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	pair, err := pki.NewKeypair(cert, key)
	if err != nil {
		f.t.Fatal(err)
	}
	return pair
}

func (f *fixture) dial(ctx context.Context, addr string) (net.Conn, error) {
	f.mu.Lock()
	listener := f.listeners[addr]
	f.mu.Unlock()
	if listener == nil {
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	return listener.DialContext(ctx)
}

// client returns a client; change, if not nil, changes its config.
func (f *fixture) client(change func(*client.Config)) *client.Client {
	endpoint := pki.Endpoint{Cluster: "example", Source: f.source, Now: time.Now}
	cfg := client.Config{
		TLS:       func(shard, host string) *tls.Config { return endpoint.Client(host, shard) },
		UserAgent: "test", Random: func() float64 { return 0.5 }, Dialer: f.dial,
	}
	if change != nil {
		change(&cfg)
	}
	c := client.New(cfg)
	f.t.Cleanup(c.Close)
	return c
}

// server is a server of a shard that is controlled by a test.
type server struct {
	nstancev1.UnimplementedOperatorServiceServer
	addr string

	mu      sync.Mutex
	leader  string     // empty: this server
	refuse  error      // the result of ListGroups and DeleteGroup
	outage  string     // of object storage
	serials []string   // the client certificates of ListGroups calls
	pages   [][]string // the ids on the pages that it lists of group web, with tombstones
	watches []*nstancev1.WatchInstancesRequest
	follows []*nstancev1.WatchEventsRequest
	events  []string // the ids of all events, one on a page
	streams []stream // the next watches, in order; the last one is repeated
}

// stream is the contents of one watch, and its end.
type stream struct {
	groups    []*nstancev1.WatchGroupsResponse
	instances []*nstancev1.WatchInstancesResponse
	events    []*nstancev1.WatchEventsResponse
	end       error // nil: it stays open
}

// up starts a server of a shard at an IP address.
func (f *fixture) up(shard, ip string) *server {
	f.t.Helper()
	key := newKey(f.t)
	cert, err := f.ca.IssueServer(pki.ServerRequest{
		Shard: shard, IPs: []netip.Addr{netip.MustParseAddr(ip)}, PublicKey: pki.PublicKey(key), Now: time.Now(), TTL: time.Hour,
	}, rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	pair, err := pki.NewKeypair(cert, key)
	if err != nil {
		f.t.Fatal(err)
	}
	s := &server{addr: ip + ":8993"}
	e := pki.Endpoint{Cluster: "example", Source: pki.NewSource(f.source.Bundle(), pair), Now: time.Now}
	serving, err := rpc.NewServer(rpc.ServerConfig{
		TLS: e.Server(), Cluster: "example", Access: rpc.Access(), Gate: s, Outage: s.outageNow, Now: time.Now,
		Logger:   slog.New(slog.DiscardHandler),
		Services: func(r grpc.ServiceRegistrar) { nstancev1.RegisterOperatorServiceServer(r, s) },
	})
	if err != nil {
		f.t.Fatal(err)
	}
	listener := bufconn.Listen(64 << 10)
	f.mu.Lock()
	f.listeners[s.addr] = listener
	f.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := serving.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			f.t.Errorf("serve: %v", err)
		}
	}()
	f.t.Cleanup(func() { serving.Stop(); <-done })
	return s
}

// Leading implements rpc.Gate.
func (s *server) Leading() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leader, s.leader == ""
}

func (s *server) outageNow() (said string) {
	s.set(func() { said = s.outage })
	return said
}

// DeleteGroup implements OperatorServiceServer.
func (s *server) DeleteGroup(context.Context, *nstancev1.DeleteGroupRequest) (*nstancev1.DeleteGroupResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &nstancev1.DeleteGroupResponse{}, s.refuse
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// ListGroups implements OperatorServiceServer.
func (s *server) ListGroups(ctx context.Context, _ *nstancev1.ListGroupsRequest) (*nstancev1.ListGroupsResponse, error) {
	caller, _ := rpc.CallerFrom(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serials = append(s.serials, caller.Serial)
	return &nstancev1.ListGroupsResponse{Groups: []*nstancev1.GroupStatus{{Key: s.addr}}}, s.refuse
}

// ListInstances implements OperatorServiceServer.
func (s *server) ListInstances(_ context.Context, req *nstancev1.ListInstancesRequest) (*nstancev1.ListInstancesResponse, error) {
	n, _ := strconv.Atoi(req.GetPageToken())
	if req.GetGroup() != "web" || !req.GetIncludeDeleted() || n >= len(s.pages) {
		return nil, rpc.Invalid.Errorf("not what was to be asked for: %v", req)
	}
	resp := &nstancev1.ListInstancesResponse{}
	for _, id := range s.pages[n] {
		resp.Instances = append(resp.Instances, &nstancev1.InstanceStatus{Id: id})
	}
	if n+1 < len(s.pages) {
		resp.NextPageToken = strconv.Itoa(n + 1)
	}
	return resp, nil
}

// RenewCertificate implements OperatorServiceServer: it returns the serial number of the
// client certificate as the certificate.
func (s *server) RenewCertificate(
	ctx context.Context, _ *nstancev1.OperatorServiceRenewCertificateRequest,
) (*nstancev1.OperatorServiceRenewCertificateResponse, error) {
	caller, _ := rpc.CallerFrom(ctx)
	return &nstancev1.OperatorServiceRenewCertificateResponse{Identity: &nstancev1.Identity{Certificate: caller.Serial}}, nil
}

// next returns the stream of the next watch.
func (s *server) next() stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.streams) == 0 {
		return stream{}
	}
	one := s.streams[0]
	s.streams = s.streams[1:]
	return one
}

// WatchGroups implements OperatorServiceServer.
func (s *server) WatchGroups(_ *nstancev1.WatchGroupsRequest, to nstancev1.OperatorService_WatchGroupsServer) error {
	one := s.next()
	return play(to, one.groups, one.end)
}

// WatchInstances implements OperatorServiceServer.
func (s *server) WatchInstances(req *nstancev1.WatchInstancesRequest, to nstancev1.OperatorService_WatchInstancesServer) error {
	s.set(func() { s.watches = append(s.watches, req) })
	one := s.next()
	return play(to, one.instances, one.end)
}

// WatchEvents implements OperatorServiceServer.
func (s *server) WatchEvents(req *nstancev1.WatchEventsRequest, to nstancev1.OperatorService_WatchEventsServer) error {
	s.set(func() { s.follows = append(s.follows, req) })
	one := s.next()
	return play(to, one.events, one.end)
}

// ListEvents implements OperatorServiceServer.
func (s *server) ListEvents(_ context.Context, req *nstancev1.ListEventsRequest) (*nstancev1.ListEventsResponse, error) {
	n, _ := strconv.Atoi(req.GetPageToken())
	if req.GetGroup() != "web" || n >= len(s.events) {
		return nil, rpc.Invalid.Errorf("not what was to be asked for: %v", req)
	}
	resp := &nstancev1.ListEventsResponse{Events: []*nstancev1.Event{{Id: s.events[n]}}, EarlierMissing: n == 0}
	if n+1 < len(s.events) {
		resp.NextPageToken = strconv.Itoa(n + 1)
	}
	return resp, nil
}

func play[T any](to grpc.ServerStreamingServer[T], messages []*T, end error) error {
	for _, m := range messages {
		if err := to.Send(m); err != nil {
			return err
		}
	}
	if end == nil {
		<-to.Context().Done()
		return to.Context().Err()
	}
	return end
}
