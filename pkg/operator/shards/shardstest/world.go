// Package shardstest gives tests shards that behave: servers in memory that keep
// groups at size, drain, boot and forget instances as real ones do, behind a real
// shards.Set and real mutual TLS. Tests may run in the time of testing/synctest.
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
)

// World is a cluster of shards in one process. It is safe for concurrent use.
type World struct {
	// Set is connected to all shards that World was made with.
	Set *shards.Set

	tb     testing.TB
	ca     *pki.CA
	source *pki.Source // what the client shows
	client *client.Client

	mu        sync.Mutex
	listeners map[string]*bufconn.Listener // by address
	shards    map[string]*Shard
}

// Start makes a world whose Set runs.
func Start(tb testing.TB, ids ...string) *World {
	tb.Helper()
	w := New(tb, nil, ids...)
	w.Run()
	return w
}

// New makes a world whose Set does not run yet; configure, if not nil, changes what
// the Set is made with.
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
	cfg := shards.Config{Client: w.client, Now: time.Now, Timeout: 2 * time.Second, Poll: 500 * time.Millisecond, Random: soon}
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

// soon has every wait be the shortest there is.
func soon() float64 { return 0 }

// Run has the Set run until the test ends.
func (w *World) Run() {
	w.tb.Helper()
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

// Add makes one more shard, which the Set does not know yet, with a server that is up.
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

// Configure has the Set know these shards and no others.
func (w *World) Configure(ids ...string) {
	w.tb.Helper()
	all := make([]client.Shard, 0, len(ids))
	for _, id := range ids {
		all = append(all, client.Shard{ID: id, Addrs: []string{w.Shard(id).addr()}})
	}
	w.Set.Configure(all)
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

// Synced waits until the Set knows everything of all the shards that it is configured
// with.
func (w *World) Synced() {
	w.tb.Helper()
	Eventually(w.tb, "all shards are synced", func() bool {
		return !slices.ContainsFunc(w.Set.Names(), func(id string) bool {
			st, ok := w.Set.State(id)
			return !ok || !st.Synced || !st.Reachable || st.ProviderKind == ""
		})
	})
}

// Eventually waits until something holds, for a minute at most.
func Eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for limit := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			tb.Fatalf("not within a minute: %s", what)
		}
	}
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

// operator is the certificate that the client shows.
func (w *World) operator() *pki.Keypair {
	w.tb.Helper()
	key := newKey(w.tb)
	r := pki.ClientRequest{Tenant: tenant, ID: operator, PublicKey: pki.PublicKey(key), Now: time.Now(), TTL: certTTL}
	cert, err := w.ca.IssueOperator(r, rand.Reader)
	return w.pair(cert, key, err)
}

// server is a certificate for a server of a shard at an IP address.
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
