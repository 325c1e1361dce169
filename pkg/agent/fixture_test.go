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

// world is a cluster in one process and in synctest's time: a CA, a network of
// in-memory connections, and the servers on it.
type world struct {
	t   *testing.T
	ca  *pki.CA
	dir string // the agent's identity directory
	// trusted are the CAs that servers trust; nil: ca alone.
	trusted *pki.Bundle

	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
	dials     int
}

// inWorld runs a test in a bubble of simulated time.
func inWorld(t *testing.T, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(newWorld(t))
	})
}

func newWorld(t *testing.T) *world {
	t.Helper()
	key := must(pki.GenerateKey(rand.Reader))(t)
	ca := must(pki.NewCA(pki.CAConfig{Cluster: cluster, Key: key, Now: time.Now(), Random: rand.Reader}))(t)
	w := &world{t: t, ca: ca, dir: t.TempDir(), listeners: make(map[string]*bufconn.Listener)}
	w.put("ca.crt", string(pki.NewBundle(ca.Certificate()).PEM()))
	w.put("nonce.jwt", nonce(cluster, shard))
	return w
}

// nonce has the claims of a real one; its signature is for the server to check.
func nonce(cluster, shard string) string {
	return nonceUntil(cluster, shard, time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
}

func nonceUntil(cluster, shard string, end time.Time) string {
	return nonceOf(instanceID, cluster, shard, end)
}

// nonceFor is nonce, of another instance.
func nonceFor(id string) string {
	return nonceOf(id, cluster, shard, time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
}

func nonceOf(id, cluster, shard string, end time.Time) string {
	claims := fmt.Sprintf(`{"kind":"agent","sub":%q,"cluster_id":%q,"shard":%q,"exp":%d}`, id, cluster, shard, end.Unix())
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func (w *world) put(name, content string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// putKey puts a private key there, and returns its text.
func (w *world) putKey(name string) string {
	w.t.Helper()
	text := must(pki.EncodePrivateKey(must(pki.GenerateKey(rand.Reader))(w.t)))(w.t)
	w.put(name, string(text))
	return string(text)
}

// file is a file's content; empty when it is not there.
func (w *world) file(name string) string {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	return string(data)
}

// found returns the one path below the identity directory that a pattern matches.
func (w *world) found(pattern string) string {
	w.t.Helper()
	all := must(filepath.Glob(filepath.Join(w.dir, pattern)))(w.t)
	if len(all) != 1 {
		w.t.Fatalf("%s: %v", pattern, all)
	}
	return all[0]
}

func (w *world) dial(ctx context.Context, addr string) (net.Conn, error) {
	w.mu.Lock()
	listener := w.listeners[addr]
	w.dials++
	w.mu.Unlock()
	if listener == nil {
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	return listener.DialContext(ctx)
}

func (w *world) dialed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dials
}

func (w *world) config() agent.Config {
	return agent.Config{
		RegistrationAddrs: []string{"10.0.0.1:8992"},
		AgentAddrs:        []string{"10.0.0.1:8994"},
		InstanceID:        instanceID,
		Hostname:          "web-1",
		IPv4:              "10.0.1.7",
		IdentityDir:       w.dir,
		IdentityMode:      0o600,
		RecvDir:           filepath.Join(w.dir, "recv"),
		RecvMode:          0o640,
		KeysDir:           filepath.Join(w.dir, "keys"),
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
		Dialer: w.dial,
	}
}

// process is a running agent.
type process struct {
	t    *testing.T
	stop context.CancelFunc
	done chan error
}

func (w *world) start(c agent.Config) *process {
	ctx, cancel := context.WithCancel(w.t.Context())
	p := &process{t: w.t, stop: cancel, done: make(chan error, 1)}
	go func() { p.done <- agent.Run(ctx, c) }()
	return p
}

// connects runs an agent for a minute, in which it connects.
func (w *world) connects(c agent.Config) {
	w.t.Helper()
	p := w.start(c)
	settle(time.Minute)
	if s := w.status(); s.State != agent.StateConnected {
		w.t.Errorf("status %+v", s)
	}
	p.end()
}

// soon waits for what must come, for an hour of simulated time: timers that go on
// would make a wait without a bound last for ever.
func soon[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Hour):
		t.Fatalf("not within an hour: %s", what)
	}
	return v
}

// end asks the agent to stop, and returns how long that took.
func (p *process) end() time.Duration {
	p.t.Helper()
	began := time.Now()
	p.stop()
	if err := soon(p.t, p.done, "the end of the agent"); err != nil {
		p.t.Errorf("the agent ended with %v", err)
	}
	return time.Since(began)
}

func (w *world) status() agent.Status {
	w.t.Helper()
	return must(agent.ReadStatus(w.dir))(w.t)
}

// report is one health report and when it came.
type report struct {
	*nstancev1.ReportHealthRequest
	at time.Time
}

// server is a server of the shard that does what a test tells it.
type server struct {
	nstancev1.UnimplementedRegistrationServiceServer
	nstancev1.UnimplementedAgentServiceServer
	w    *world
	host string
	// id is what the certificate says the server is of.
	id string

	mu            sync.Mutex
	leader        string // empty: this one
	register      func(*nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error)
	revoked       error
	chain         string                                                  // the CA chain to answer with; empty: the CA alone
	sides         bool                                                    // serve the other two streams
	askKeys       func(nstancev1.AgentService_KeyGenRequestsServer) error // nil: as sides says
	pushFiles     func(nstancev1.AgentService_ReceiveFilesServer) error
	submit        func(map[string]string) error // what SubmitPublicKeys answers; nil: it takes all
	submitted     []map[string]string
	deaf          bool // never answer the health stream's end
	registrations []*nstancev1.RegisterAgentRequest
	reports       []report
	streams       int      // health streams opened
	runs          []string // of them
	sideCalls     int
	sideOpen      int
	sideEnds      []context.CancelFunc
	renew         func(*nstancev1.AgentServiceRenewCertificateRequest) (*nstancev1.Identity, error) // nil: as a good server does
	renewals      []renewal
	running       []*grpc.Server
	serving       sync.WaitGroup
}

// up starts a server on host, which is an IP address.
func (w *world) up(host string) *server {
	w.t.Helper()
	s := &server{w: w, host: host, id: shard}
	s.register = s.grant
	s.start()
	w.t.Cleanup(s.down)
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

// Look implements rpc.Judge; Known knows everybody.
func (s *server) Look(context.Context, pki.Caller) error { return errors.New("asked of the store") }

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

// down kills the server: connections break, and new ones are refused.
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

// follow makes the server name another host as the leader, and cuts its streams
// as a server does that lost its lead.
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
