// Package shardstest provides simulated shards for tests: in-memory servers that keep groups
// at size, drain, boot and forget instances as real ones do, behind a real shards.Set and real
// mutual TLS. Tests may use testing/synctest.
package shardstest

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/operator/shards"
	"github.com/nstance/nstance/pkg/pki"
)

const (
	cluster  = "example"
	tenant   = "default"
	operator = "opr01h455vb4pex5vsknk084sn02q"
	certTTL  = 24 * time.Hour

	// callTimeout is that of the Set's calls. On a machine that is busy one that is answered
	// may take long, and is not to count as one that is not.
	callTimeout = time.Minute
)

// World is a cluster of shards in one process. It is safe for concurrent use.
type World struct {
	// Set is connected to all shards that World was created with.
	Set *shards.Set

	tb     testing.TB
	ca     *pki.CA
	source *pki.Source // the client's certificate
	client *client.Client

	mu        sync.Mutex
	listeners map[string]*bufconn.Listener // by address
	shards    map[string]*Shard
	running   bool // the Set runs
	again     int  // number of reconnects
}

// Start returns a world whose Set runs.
func Start(tb testing.TB, ids ...string) *World {
	tb.Helper()
	w := New(tb, nil, ids...)
	w.Run()
	return w
}

// New returns a world whose Set does not run yet; configure, if not nil, changes the Set's
// config.
func New(tb testing.TB, configure func(*shards.Config), ids ...string) *World {
	tb.Helper()
	ca, err := pki.NewCA(pki.CAConfig{Cluster: cluster, Key: newKey(tb), Now: time.Now(), Random: rand.Reader})
	if err != nil {
		tb.Fatal(err)
	}
	w := &World{tb: tb, ca: ca, listeners: map[string]*bufconn.Listener{}, shards: map[string]*Shard{}}
	w.source = pki.NewSource(pki.NewBundle(ca.Certificate()), w.operator())
	endpoint := pki.Endpoint{Cluster: cluster, Source: w.source, Now: time.Now}
	w.client = client.New(client.Config{
		TLS:       func(shard, host string) *tls.Config { return endpoint.Client(host, shard) },
		UserAgent: "test", Random: soon, Dialer: w.dial,
	})
	tb.Cleanup(w.client.Close)
	cfg := shards.Config{Client: w.client, Now: time.Now, Timeout: callTimeout, Poll: 500 * time.Millisecond, Random: soon}
	if configure != nil {
		configure(&cfg)
	}
	w.Set = shards.New(cfg)
	for _, id := range ids {
		w.Add(id)
	}
	w.Configure(ids...)
	return w
}

// soon makes all delays minimal.
func soon() float64 { return 0 }

// Run runs the Set until the test ends.
func (w *World) Run() {
	w.tb.Helper()
	w.mu.Lock()
	w.running = true
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.Set.Run(ctx); err != nil {
			w.tb.Errorf("the set of shards: %v", err)
		}
	}()
	w.tb.Cleanup(func() { cancel(); <-done })
}

// Add adds a running shard, which the Set does not know yet.
func (w *World) Add(id string) *Shard {
	w.tb.Helper()
	w.mu.Lock()
	n := len(w.shards) + 1
	s := newShard(w, id, fmt.Sprintf("10.0.%d.1", n))
	w.shards[id] = s
	w.mu.Unlock()
	s.Start()
	w.tb.Cleanup(s.end)
	return s
}

// Configure configures the Set with exactly these shards.
func (w *World) Configure(ids ...string) {
	w.tb.Helper()
	w.mu.Lock()
	times := 1 + w.again%2
	w.mu.Unlock()
	all := make([]client.Shard, 0, len(ids))
	for _, id := range ids {
		all = append(all, client.Shard{ID: id, Addrs: slices.Repeat([]string{w.Shard(id).addr()}, times)})
	}
	w.Set.Configure(all)
}

// Reconnect makes the Set reconnect to its shards, as after a change of their addresses. All
// listeners are notified.
func (w *World) Reconnect() {
	w.tb.Helper()
	w.mu.Lock()
	w.again++
	w.mu.Unlock()
	w.Configure(w.Set.Names()...)
}

// Shard returns one of the shards.
func (w *World) Shard(id string) *Shard {
	w.tb.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.shards[id]
	if s == nil {
		w.tb.Fatalf("the world has no shard %q", id)
	}
	return s
}

func (w *World) dial(ctx context.Context, addr string) (net.Conn, error) {
	w.mu.Lock()
	listener := w.listeners[addr]
	w.mu.Unlock()
	if listener == nil {
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	return listener.DialContext(ctx)
}

func (w *World) listen(addr string) *bufconn.Listener {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listeners[addr] = bufconn.Listen(256 << 10)
	return w.listeners[addr]
}

func (w *World) unlisten(addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.listeners, addr)
}

func newKey(tb testing.TB) []byte {
	tb.Helper()
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// operator returns the client's certificate.
func (w *World) operator() *pki.Keypair {
	w.tb.Helper()
	key := newKey(w.tb)
	r := pki.ClientRequest{Tenant: tenant, ID: operator, PublicKey: pki.PublicKey(key), Now: time.Now(), TTL: certTTL}
	cert, err := w.ca.IssueOperator(r, rand.Reader)
	return w.pair(cert, key, err)
}

// server returns a server certificate for a shard at an IP address.
func (w *World) server(shard, ip string) *pki.Keypair {
	w.tb.Helper()
	key := newKey(w.tb)
	r := pki.ServerRequest{
		Shard: shard, IPs: []netip.Addr{netip.MustParseAddr(ip)}, PublicKey: pki.PublicKey(key), Now: time.Now(), TTL: certTTL,
	}
	cert, err := w.ca.IssueServer(r, rand.Reader)
	return w.pair(cert, key, err)
}

func (w *World) pair(cert *x509.Certificate, key []byte, err error) *pki.Keypair {
	w.tb.Helper()
	if err != nil {
		w.tb.Fatal(err)
	}
	pair, err := pki.NewKeypair(cert, key)
	if err != nil {
		w.tb.Fatal(err)
	}
	return pair
}
