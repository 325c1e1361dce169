package agent_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	cluster    = "example"
	shard      = "dev-1"
	instanceID = "knd01h455vb4pex5vsknk084sn02q"
)

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// fixture is a cluster in one process and in simulated time: a CA, a network of in-memory
// connections, and its servers.
type fixture struct {
	t   *testing.T
	ca  *pki.CA
	dir string // the agent's identity directory
	// trusted are the CAs that servers trust; nil: only ca.
	trusted *pki.Bundle

	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
	dials     int
}

// withFixture runs a test in a bubble of simulated time.
func withFixture(t *testing.T, test func(*fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(newFixture(t))
	})
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	key := must(pki.GenerateKey(rand.Reader))(t)
	ca := must(pki.NewCA(pki.CAConfig{Cluster: cluster, Key: key, Now: time.Now(), Random: rand.Reader}))(t)
	f := &fixture{t: t, ca: ca, dir: t.TempDir(), listeners: make(map[string]*bufconn.Listener)}
	f.put("ca.crt", string(pki.NewBundle(ca.Certificate()).PEM()))
	f.put("nonce.jwt", nonce(cluster, shard))
	return f
}

// nonce returns a nonce with valid claims; agents do not check its signature.
func nonce(cluster, shard string) string {
	return nonceUntil(cluster, shard, time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
}

func nonceUntil(cluster, shard string, end time.Time) string {
	return nonceOf(instanceID, cluster, shard, end)
}

// nonceFor returns a nonce for another instance.
func nonceFor(id string) string {
	return nonceOf(id, cluster, shard, time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
}

func nonceOf(id, cluster, shard string, end time.Time) string {
	claims := fmt.Sprintf(`{"kind":"agent","sub":%q,"cluster_id":%q,"shard":%q,"exp":%d}`, id, cluster, shard, end.Unix())
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func (f *fixture) put(name, content string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// putKey writes a private key, and returns its text.
func (f *fixture) putKey(name string) string {
	f.t.Helper()
	text := must(pki.EncodePrivateKey(must(pki.GenerateKey(rand.Reader))(f.t)))(f.t)
	f.put(name, string(text))
	return string(text)
}

// file returns the content of a file, or an empty string.
func (f *fixture) file(name string) string {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.t.Fatal(err)
	}
	return string(data)
}

// found returns the only path below the identity directory that matches a pattern.
func (f *fixture) found(pattern string) string {
	f.t.Helper()
	all := must(filepath.Glob(filepath.Join(f.dir, pattern)))(f.t)
	if len(all) != 1 {
		f.t.Fatalf("%s: %v", pattern, all)
	}
	return all[0]
}

func (f *fixture) dial(ctx context.Context, addr string) (net.Conn, error) {
	f.mu.Lock()
	listener := f.listeners[addr]
	f.dials++
	f.mu.Unlock()
	if listener == nil {
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	return listener.DialContext(ctx)
}

func (f *fixture) dialed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dials
}

func (f *fixture) config() agent.Config {
	return agent.Config{
		RegistrationAddrs: []string{"10.0.0.1:8992"},
		AgentAddrs:        []string{"10.0.0.1:8994"},
		InstanceID:        instanceID,
		Hostname:          "web-1",
		IPv4:              "10.0.1.7",
		IdentityDir:       f.dir,
		IdentityMode:      0o600,
		RecvDir:           filepath.Join(f.dir, "recv"),
		RecvMode:          0o640,
		KeysDir:           filepath.Join(f.dir, "keys"),
		KeysMode:          0o640,
		ReportInterval:    time.Minute,
		Version:           "1.2.3",
		Logger:            slog.New(slog.DiscardHandler),
		Now:               time.Now,
		Random:            func() float64 { return 0.5 },
		Entropy:           rand.Reader,
		Sample: func(context.Context) *nstancev1.Resources {
			return &nstancev1.Resources{CpuPercent: 12.5, MemoryTotalBytes: 1 << 30}
		},
		Dialer: f.dial,
	}
}

// process is a running agent.
type process struct {
	t    *testing.T
	stop context.CancelFunc
	done chan error
}

func (f *fixture) start(c agent.Config) *process {
	ctx, cancel := context.WithCancel(f.t.Context())
	p := &process{t: f.t, stop: cancel, done: make(chan error, 1)}
	go func() { p.done <- agent.Run(ctx, c) }()
	return p
}

// connects runs an agent for a minute, and checks that it connects.
func (f *fixture) connects(c agent.Config) {
	f.t.Helper()
	p := f.start(c)
	settle(time.Minute)
	if s := f.status(); s.State != agent.StateConnected {
		f.t.Errorf("status %+v", s)
	}
	p.end()
}

// soon waits for a condition, for an hour of simulated time: with recurring timers an
// unbounded wait would never end.
func soon[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Hour):
		t.Fatalf("not within an hour: %s", what)
	}
	return v
}

// end stops the agent, and returns how long that took.
func (p *process) end() time.Duration {
	p.t.Helper()
	began := time.Now()
	p.stop()
	if err := soon(p.t, p.done, "the end of the agent"); err != nil {
		p.t.Errorf("the agent ended with %v", err)
	}
	return time.Since(began)
}

func (f *fixture) status() agent.Status {
	f.t.Helper()
	return must(agent.ReadStatus(f.dir))(f.t)
}

// report is a health report and its time of arrival.
type report struct {
	*nstancev1.ReportHealthRequest
	at time.Time
}

// server is a server of the shard that is controlled by a test.
type server struct {
	nstancev1.UnimplementedRegistrationServiceServer
	nstancev1.UnimplementedAgentServiceServer
	w    *fixture
	host string
	// id is the SPIFFE ID in the certificate.
	id string

	mu            sync.Mutex
	leader        string // empty: this server
	register      func(*nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error)
	revoked       error
	chain         string                                                  // the CA chain to answer with; empty: the CA alone
	sides         bool                                                    // serve the other two streams
	askKeys       func(nstancev1.AgentService_KeyGenRequestsServer) error // nil: as sides says
	pushFiles     func(nstancev1.AgentService_ReceiveFilesServer) error
	submit        func(map[string]string) error // the result of SubmitPublicKeys; nil: accepts all
	submitted     []map[string]string
	deaf          bool // never answers the end of the health stream
	registrations []*nstancev1.RegisterAgentRequest
	reports       []report
	streams       int      // health streams opened
	runs          []string // their run IDs
	sideCalls     int
	sideOpen      int
	sideEnds      []context.CancelFunc
	renew         func(*nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) // nil: as a good server does
	renewals      []renewal
	running       []*grpc.Server
	serving       sync.WaitGroup
}

// up starts a server on host, which is an IP address.
func (f *fixture) up(host string) *server {
	f.t.Helper()
	s := &server{w: f, host: host, id: shard}
	s.register = s.grant
	s.start()
	f.t.Cleanup(s.down)
	return s
}

func (s *server) start() {
	t := s.w.t
	t.Helper()
	key := must(pki.GenerateKey(rand.Reader))(t)
	cert := must(s.w.ca.IssueServer(pki.ServerRequest{
		Shard: s.id, IPs: []netip.Addr{netip.MustParseAddr(s.host)}, PublicKey: pki.PublicKey(key),
		Now: time.Now(), TTL: 1000 * time.Hour,
	}, rand.Reader))(t)
	keypair := must(pki.NewKeypair(cert, key))(t)
	trusted := s.w.trusted
	if trusted == nil {
		trusted = pki.NewBundle(s.w.ca.Certificate())
	}
	endpoint := pki.Endpoint{Cluster: cluster, Source: pki.NewSource(trusted, keypair), Now: time.Now}
	base := rpc.ServerConfig{
		Cluster: cluster, Access: rpc.Access(), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Judge: s,
	}
	registration, agents := base, base
	registration.TLS, registration.Gate = endpoint.RegistrationServer(), gate{s, "8992"}
	registration.Services = func(r grpc.ServiceRegistrar) { nstancev1.RegisterRegistrationServiceServer(r, s) }
	agents.TLS, agents.Gate = endpoint.Server(), gate{s, "8994"}
	agents.Services = func(r grpc.ServiceRegistrar) { nstancev1.RegisterAgentServiceServer(r, s) }
	s.listen("8992", registration)
	s.listen("8994", agents)
}

// Known implements rpc.Judge.
func (s *server) Known(pki.Caller) (verdict error, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revoked, true
}

// Verify implements rpc.Judge; Known knows every caller.
func (s *server) Verify(context.Context, pki.Caller) error { return errors.New("asked of the store") }

func (s *server) listen(port string, c rpc.ServerConfig) {
	s.w.t.Helper()
	listener := bufconn.Listen(64 << 10)
	server := must(rpc.NewServer(c))(s.w.t)
	s.w.mu.Lock()
	s.w.listeners[net.JoinHostPort(s.host, port)] = listener
	s.w.mu.Unlock()
	s.serving.Go(func() {
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			s.w.t.Errorf("serve: %v", err)
		}
	})
	s.mu.Lock()
	s.running = append(s.running, server)
	s.mu.Unlock()
}

// down stops the server: connections break, and new ones are refused.
func (s *server) down() {
	s.w.mu.Lock()
	delete(s.w.listeners, net.JoinHostPort(s.host, "8992"))
	delete(s.w.listeners, net.JoinHostPort(s.host, "8994"))
	s.w.mu.Unlock()
	s.mu.Lock()
	running := s.running
	s.running = nil
	s.mu.Unlock()
	for _, server := range running {
		server.Stop()
	}
	s.serving.Wait()
}

type gate struct {
	s    *server
	port string
}

func (g gate) Leading() (string, bool) {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	if g.s.leader == "" {
		return "", true
	}
	return net.JoinHostPort(g.s.leader, g.port), false
}

// follow makes the server name another host as the leader, and ends its streams, like a server
// that lost the lead.
func (s *server) follow(host string) {
	s.down()
	s.mu.Lock()
	s.leader = host
	s.mu.Unlock()
	s.start()
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}
