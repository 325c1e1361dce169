// Package registrationtest has shards that register operators and renew their
// certificates, and do nothing else, for tests. They listen on the loopback interface, or on
// a Network in memory.
package registrationtest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// The cluster's names and nonce.
const (
	Name     = "example"
	Tenant   = "default"
	Operator = "opr01h455vb4pex5vsknk084sn02q"
	Nonce    = "the-nonce"
)

// Cluster is the state shared by shards. It is safe for concurrent use, except for fields set
// before shards are added.
type Cluster struct {
	CA *pki.CA
	// Life is the certificates' lifetime.
	Life time.Duration
	// Before runs ahead of each registration, with the shard called, and may refuse it;
	// optional.
	Before func(shard string) error
	// Network is where the shards listen; nil: on the loopback interface.
	Network *Network

	tb        testing.TB
	mu        sync.Mutex
	bound     string   // the key that spent the nonce; empty if unspent
	asked     []string // the keys of all registrations
	renewals  int
	forgotten bool
}

// New returns a cluster. A nil ca means a new one.
func New(tb testing.TB, ca *pki.CA) *Cluster {
	tb.Helper()
	if ca == nil {
		var err error
		if ca, err = pki.NewCA(pki.CAConfig{Cluster: Name, Key: newKey(tb), Now: time.Now(), Random: rand.Reader}); err != nil {
			tb.Fatal(err)
		}
	}
	return &Cluster{CA: ca, Life: 24 * time.Hour, tb: tb}
}

func newKey(tb testing.TB) ed25519.PrivateKey {
	tb.Helper()
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// CAs returns the CA's certificate.
func (c *Cluster) CAs() []byte { return pki.EncodeCertificate(c.CA.Certificate()) }

// Asked returns the keys of registrations so far, including refused ones.
func (c *Cluster) Asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.asked...)
}

// Renewals returns how many certificates were renewed.
func (c *Cluster) Renewals() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.renewals
}

// RefuseRenewals makes all further renewals fail.
func (c *Cluster) RefuseRenewals() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgotten = true
}

// register registers a key; the nonce is bound to its first key.
func (c *Cluster) register(shard, nonce, key string) (*nstancev1.Identity, error) {
	if c.Before != nil {
		if err := c.Before(shard); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, key)
	switch {
	case nonce != Nonce:
		return nil, rpc.Denied.Errorf("nonce has a bad signature")
	case c.bound != "" && c.bound != key:
		return nil, rpc.Denied.Errorf("the nonce was spent with another key")
	}
	c.bound = key
	return c.issue(key)
}

func (c *Cluster) renew(key string) (*nstancev1.Identity, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forgotten {
		return nil, rpc.Denied.Errorf("the operator was removed")
	}
	c.renewals++
	return c.issue(key)
}

func (c *Cluster) issue(public string) (*nstancev1.Identity, error) {
	key, err := pki.ParsePublicKey([]byte(public))
	if err != nil {
		return nil, err
	}
	r := pki.ClientRequest{Tenant: Tenant, ID: Operator, PublicKey: key, Now: time.Now(), TTL: c.Life}
	cert, err := c.CA.IssueOperator(r, rand.Reader)
	if err != nil {
		return nil, err
	}
	return &nstancev1.Identity{
		Certificate: string(pki.EncodeCertificate(cert)), CaChain: string(c.CAs()), CaChainSignature: c.CA.SignBundle(c.CAs()),
	}, nil
}

// Shard has the addresses of a shard's services.
type Shard struct {
	ID, Registration, Operator string
}

// Shard starts a shard, which stops with the test.
func (c *Cluster) Shard(id string) Shard {
	c.tb.Helper()
	key, loopback := newKey(c.tb), netip.MustParseAddr("127.0.0.1")
	r := pki.ServerRequest{Shard: id, IPs: []netip.Addr{loopback}, PublicKey: pki.PublicKey(key), Now: time.Now(), TTL: 24 * time.Hour}
	cert, err := c.CA.IssueServer(r, rand.Reader)
	if err != nil {
		c.tb.Fatal(err)
	}
	pair, err := pki.NewKeypair(cert, key)
	if err != nil {
		c.tb.Fatal(err)
	}
	e := pki.Endpoint{Cluster: Name, Source: pki.NewSource(pki.NewBundle(c.CA.Certificate()), pair), Now: time.Now}
	return Shard{
		ID: id,
		Registration: c.serve(e.RegistrationServer(), rpc.RegistrationLimits(), func(r grpc.ServiceRegistrar) {
			nstancev1.RegisterRegistrationServiceServer(r, registrar{cluster: c, shard: id})
		}),
		Operator: c.serve(e.Server(), rpc.OperatorLimits(), func(r grpc.ServiceRegistrar) {
			nstancev1.RegisterOperatorServiceServer(r, renewer{cluster: c})
		}),
	}
}

func (c *Cluster) serve(tls *tls.Config, limits rpc.Limits, services func(grpc.ServiceRegistrar)) (addr string) {
	c.tb.Helper()
	server, err := rpc.NewServer(rpc.ServerConfig{
		TLS: tls, Cluster: Name, Access: rpc.Access(), Gate: leading{}, Now: time.Now, Limits: limits, Services: services,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		c.tb.Fatal(err)
	}
	var listener net.Listener
	if c.Network != nil {
		listener, addr = c.Network.listen()
	} else {
		listener, addr = loopback(c.tb)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			c.tb.Errorf("serve: %v", err)
		}
	}()
	c.tb.Cleanup(func() { server.Stop(); <-done })
	return addr
}

type leading struct{}

func (leading) Leading() (string, bool) { return "", true }

type registrar struct {
	nstancev1.UnimplementedRegistrationServiceServer
	cluster *Cluster
	shard   string
}

func (r registrar) RegisterOperator(
	_ context.Context, req *nstancev1.RegisterOperatorRequest,
) (*nstancev1.RegisterOperatorResponse, error) {
	id, err := r.cluster.register(r.shard, req.GetNonce(), req.GetPublicKey())
	return &nstancev1.RegisterOperatorResponse{Identity: id}, err
}

type renewer struct {
	nstancev1.UnimplementedOperatorServiceServer
	cluster *Cluster
}

func (r renewer) RenewCertificate(
	_ context.Context, req *nstancev1.OperatorServiceRenewCertificateRequest,
) (*nstancev1.OperatorServiceRenewCertificateResponse, error) {
	id, err := r.cluster.renew(req.GetPublicKey())
	return &nstancev1.OperatorServiceRenewCertificateResponse{Identity: id}, err
}
