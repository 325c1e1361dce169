// A hybrid key exchange costs more than the rest of a handshake, and nothing here depends on it.
//go:debug tlsmlkem=0

package server_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/nstance/nstance/pkg/server"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/shardtest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// The tests run whole servers. Time, the network, the object storage and the cloud are simulated
// (package shardtest has the network), so minutes pass at once, and nothing depends on the
// machine's load. A test is wrapped in simulated, or a subtest's body in simulation.
//
// Tests of the machine's own network are only in machine_test.go.

const (
	clusterID     = "example"
	shardID       = "dev-1"
	encryptionKey = "thisisa32byteencryptionkey123456"
	patience      = time.Minute // for what takes milliseconds unless something is wrong
)

// simulated runs a test in simulated time, in parallel. Everything that it starts ends with
// it. A holder of a sync.Mutex must not wait for time to pass: time stands still while another
// goroutine waits for the mutex.
func simulated(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // for remaining connections and timers
		test(t)
	})
}

// simulation wraps a test in simulated time, for t.Run.
func simulation(test func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) { simulated(t, test) }
}

// site is the environment of a cluster's servers: its storage, its cloud, and the config of one
// shard.
type site struct {
	t       *testing.T
	inner   *mem.Store
	store   *objecttest.Faults
	world   *fake.World
	network *shardtest.Network // nil: this machine's
	config  map[string]string  // what a test replaces in the config
	agents  *fleetOfAgents
}

// newSite is a site with a network of its own.
func newSite(t *testing.T, edits ...func(*site)) *site {
	t.Helper()
	s := onThisMachine(t)
	s.network = shardtest.NewNetwork(1, latency, latency)
	for _, edit := range edits {
		edit(s)
	}
	return s
}

// latency is the latency of the simulated network.
const latency = 100 * time.Microsecond

// onThisMachine is a site on the machine's own network and time.
func onThisMachine(t *testing.T) *site {
	t.Helper()
	inner := mem.New(mem.Config{HashETags: true})
	s := &site{
		t: t, inner: inner, store: objecttest.NewFaults(inner, nil), world: fake.New(fake.Config{}),
		config: map[string]string{
			"BIND": `"health_addr": "127.0.0.1:0", "election_addr": "127.0.0.1:0",
			  "registration_addr": "127.0.0.1:0", "operator_addr": "127.0.0.1:0", "agent_addr": "127.0.0.1:0"`,
			"GROUPS": `"default": { "web": { "template": "knd", "size": 2 } }`,
			"VARS":   `{ "n": 1 }`,
			"MORE":   "",
		},
	}
	s.putConfig(shardID)
	return s
}

// with replaces a part of the config.
func with(part, text string) func(*site) {
	return func(s *site) {
		s.config[part] = text
		s.putConfig(shardID)
	}
}

// text is the shard's config.
func (s *site) text() string {
	text := `{
	  "cluster": { "id": "` + clusterID + `", "secrets": { "encryption_key": { "provider": "env", "source": "NSTANCE_ENCRYPTION_KEY" } } },
	  "server": {
	    "provider": { "kind": "fake", "region": "r", "zone": "z" },
	    "bind": { BIND },
	    "leader_election": { "renew_interval": "1s", "lease_duration": "10s", "fence_window": "100ms" },
	    "shutdown_timeout": "2s",
	    "subnet_pools": { "workers": { "subnets": ["a"], "tenants": ["*"] }, "closed": ["b"] },
	    "dynamic_subnet_pools": ["workers"],
	    "create_rate": { "per_second": 0 }, "create_backoff": { "settle": "0s" },
	    "default_drain_timeout": "0s",
	    "health": { "report_interval": "1m" },
	    MORE
	  },
	  "tenants": { "prod": {} },
	  "templates": {
	    "knd": { "tenants": ["*"], "kind": "knd", "arch": "amd64", "subnet_pool": "workers", "vars": VARS },
	    "big": { "kind": "big", "arch": "amd64", "subnet_pool": "closed" },
	  },
	  "groups": { GROUPS },
	}`
	for _, key := range slices.Sorted(maps.Keys(s.config)) {
		text = strings.ReplaceAll(text, key, s.config[key])
	}
	return text
}

func (s *site) putConfig(shard string) { s.put("config/"+shard+".jsonc", s.text()) }

func (s *site) put(key, body string) {
	s.t.Helper()
	if _, err := s.inner.Put(context.Background(), key, []byte(body), object.Precondition{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) get(key string) string {
	s.t.Helper()
	o, err := s.inner.Get(context.Background(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(o.Body)
}

func (s *site) delete(key string) {
	s.t.Helper()
	if err := s.inner.Delete(context.Background(), key); err != nil {
		s.t.Fatal(err)
	}
}

// keys lists what there is under a prefix.
func (s *site) keys(prefix string) []string {
	s.t.Helper()
	infos, err := object.All(context.Background(), s.inner, prefix)
	if err != nil {
		s.t.Fatal(err)
	}
	var keys []string
	for _, i := range infos {
		keys = append(keys, i.Key)
	}
	return keys
}

// trust returns the cluster's, as an administrator reads it.
func (s *site) trust() secrets.Trust {
	s.t.Helper()
	trust, err := secrets.Load(context.Background(), s.trustConfig())
	if err != nil {
		s.t.Fatal(err)
	}
	return trust
}

// trustConfig is the config of trust.
func (s *site) trustConfig() secrets.BootstrapConfig {
	s.t.Helper()
	sealed, err := secrets.Open(context.Background(), secrets.Config{
		Provider: "object-storage", Prefix: "cluster/secret/", Key: secrets.KeySource{Provider: "env", Source: "K"},
		Store: s.inner, Random: rand.Reader, Sources: secrets.LocalSources(func(string) string { return encryptionKey }),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return secrets.BootstrapConfig{Store: s.inner, Secrets: sealed}
}

// loopback is the address of servers and clients.
const loopback = "127.0.0.1"

// connect opens a connection to a server.
func (s *site) connect(ctx context.Context, addr string) (net.Conn, error) {
	return s.connectFrom(ctx, loopback, addr)
}

// connectFrom opens a connection from an address of the 127.0.0.0/8 network.
func (s *site) connectFrom(ctx context.Context, source, addr string) (net.Conn, error) {
	if s.network != nil {
		return s.network.Host(source).Dial(ctx, addr)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	return dialer.DialContext(ctx, "tcp", addr)
}

// web returns an HTTP client with a source address.
func (s *site) web(source string) *http.Client {
	connect := func(ctx context.Context, _, addr string) (net.Conn, error) { return s.connectFrom(ctx, source, addr) }
	return &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: connect, DisableKeepAlives: true}}
}

// process is one server under test.
type process struct {
	t    *testing.T
	site *site
	log  *journal
	stop context.CancelFunc
	done chan struct{}
	err  error // set when done is closed

	look  sync.Once
	looks nstancev1.OperatorServiceClient
}

// start starts a server. tweak may change its config.
func (s *site) start(tweaks ...func(*server.Config)) *process {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{t: s.t, site: s, log: &journal{}, stop: cancel, done: make(chan struct{})}
	cfg := server.Config{
		Shard: shardID, ID: "a", CacheDir: s.t.TempDir(), AdvertiseHost: "127.0.0.1",
		Bind:  server.Endpoints{Health: "127.0.0.1:0"},
		Store: s.store, Times: server.Times{BootRetry: 20 * time.Millisecond},
		OpenProvider: func(o server.Opening) (provider.Provider, error) {
			return s.world.Open(o.Scope, "a"), nil
		},
		Getenv: env(map[string]string{"NSTANCE_ENCRYPTION_KEY": encryptionKey}),
		Now:    time.Now, Random: rand.Reader, Logger: slog.New(p.log),
	}
	if s.network != nil {
		host := s.network.Host(loopback)
		cfg.Listen, cfg.Dial = host.Listen, host.Dial
	}
	for _, tweak := range tweaks {
		tweak(&cfg)
	}
	go func() {
		defer close(p.done)
		p.err = server.Run(ctx, cfg)
	}()
	s.t.Cleanup(func() {
		p.shutdown()
		if s.t.Failed() {
			s.t.Logf("log of server %s:\n%s", cfg.ID, p.log)
		}
	})
	return p
}

func env(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func named(id string) func(*server.Config) { return func(c *server.Config) { c.ID = id } }

// shutdown is SIGTERM; it returns when the server has ended.
func (p *process) shutdown() error {
	p.stop()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatal("the server does not stop")
	}
	return p.err
}

// ends shuts a server down, which must succeed.
func (p *process) ends() {
	p.t.Helper()
	if err := p.shutdown(); err != nil {
		p.t.Fatal(err)
	}
}

// addr returns an address from the server's log.
func (p *process) addr(message, name string) string {
	p.t.Helper()
	p.await(message)
	return p.log.attr(message, name)
}

func (p *process) healthAddr() string       { return p.addr("starting", "health") }
func (p *process) registrationAddr() string { return p.addr("serving", "registration") }
func (p *process) operatorAddr() string     { return p.addr("serving", "operator") }
func (p *process) agentAddr() string        { return p.addr("serving", "agent") }

// await waits for a line of the log.
func (p *process) await(message string) {
	p.t.Helper()
	eventually(p.t, "the log says "+message, func() error {
		select {
		case <-p.done:
			if p.log.count(message) == 0 {
				p.t.Fatalf("the server ended (%v) without saying %q", p.err, message)
			}
		default:
		}
		if p.log.count(message) == 0 {
			return fmt.Errorf("it has not")
		}
		return nil
	})
}

func (p *process) awaitLeading() *process {
	p.t.Helper()
	p.await("ready to act")
	return p
}

// health asks the health endpoint.
func (p *process) health() (code int, body string) {
	p.t.Helper()
	resp, err := p.site.web(loopback).Get("http://" + p.healthAddr() + "/health")
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// eventually waits until check returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// records returns the stored records of the shard's instances.
func (s *site) records() []fleet.Instance {
	s.t.Helper()
	l, err := ledger.Open(ledger.Config{Store: s.inner, Shard: shardID, Writer: "test", Concurrency: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := l.Load(context.Background()); err != nil {
		s.t.Fatal(err)
	}
	return l.Instances()
}

// leader returns the election record.
func (s *site) leader() election.Record {
	s.t.Helper()
	var r election.Record
	if err := r.UnmarshalJSON([]byte(s.get("leader/" + shardID + ".json"))); err != nil {
		s.t.Fatal(err)
	}
	return r
}

// journal records a server's log.
type journal struct {
	mu    sync.Mutex
	lines []slog.Record
}

// Enabled implements slog.Handler.
func (j *journal) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (j *journal) Handle(_ context.Context, r slog.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, r.Clone())
	return nil
}

// WithAttrs implements slog.Handler.
func (j *journal) WithAttrs([]slog.Attr) slog.Handler { return j }

// WithGroup implements slog.Handler.
func (j *journal) WithGroup(string) slog.Handler { return j }

func (j *journal) count(message string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.lines {
		if r.Message == message {
			n++
		}
	}
	return n
}

// counting counts the lines with a message and an attribute.
func (j *journal) counting(message, name, value string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.lines {
		if r.Message != message {
			continue
		}
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == name && a.Value.String() == value {
				n++
			}
			return true
		})
	}
	return n
}

// attr returns an attribute of the last line with that message.
func (j *journal) attr(message, name string) (value string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.lines {
		if r.Message != message {
			continue
		}
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == name {
				value = a.Value.String()
			}
			return true
		})
	}
	return value
}

// String returns the end of the log.
func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var b strings.Builder
	h := slog.NewTextHandler(&b, nil)
	for _, r := range j.lines[max(0, len(j.lines)-80):] {
		_ = h.Handle(context.Background(), r)
	}
	return b.String()
}
