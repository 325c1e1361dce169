package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
)

// simulated is one agent: a real registration, and the real streams of package agent over mutual
// TLS, without files and metrics of a machine.
type simulated struct {
	id       fleet.InstanceID
	endpoint pki.Endpoint
	addrs    []string
	interval time.Duration
	observe  func(agent.Event)
	files    agent.Files // nil: it receives none

	mu   sync.Mutex
	dead bool
	conn net.Conn
}

// register exchanges a nonce for an identity, over a connection of its own.
func register(ctx context.Context, bundle *pki.Bundle, key ed25519.PrivateKey, addrs []string, nonce string) (*pki.Keypair, error) {
	public, err := pki.EncodePublicKey(pki.PublicKey(key))
	if err != nil {
		return nil, err
	}
	endpoint := pki.Endpoint{Cluster: clusterID, Source: pki.NewSource(bundle, nil), Now: time.Now}
	client, err := newClient(endpoint, addrs, nil)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var granted *nstancev1.Identity
	err = client.Do(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		answer, err := nstancev1.NewRegistrationServiceClient(conn).RegisterAgent(ctx, &nstancev1.RegisterAgentRequest{
			Nonce: nonce, PublicKey: string(public),
		})
		granted = answer.GetIdentity()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	cert, err := pki.ParseCertificate([]byte(granted.GetCertificate()))
	if err != nil {
		return nil, err
	}
	return pki.NewKeypair(cert, key)
}

func newClient(endpoint pki.Endpoint, addrs []string, dialer func(context.Context, string) (net.Conn, error)) (*rpc.Client, error) {
	return rpc.NewClient(rpc.ClientConfig{
		Addrs: addrs, UserAgent: "bench", Random: mathrand.Float64, Dialer: dialer,
		TLS: func(host string) *tls.Config { return endpoint.Client(host, shardID) },
	})
}

// boot runs an agent as on a new VM, until ctx ends.
func (s *simulated) boot(ctx context.Context, spec provider.Spec) error {
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	bundle, err := pki.ParseBundle(spec.Bootstrap.CACert)
	if err != nil {
		return err
	}
	pair, err := register(ctx, bundle, key, spec.Bootstrap.RegistrationAddrs, spec.Bootstrap.Nonce)
	if err != nil {
		return err
	}
	s.endpoint = pki.Endpoint{Cluster: clusterID, Source: pki.NewSource(bundle, pair), Now: time.Now}
	s.addrs, s.interval = spec.Bootstrap.AgentAddrs, spec.Bootstrap.ReportInterval
	return s.hold(ctx)
}

// hold keeps the streams open until ctx ends, then closes them in order.
func (s *simulated) hold(ctx context.Context) error {
	client, err := newClient(s.endpoint, s.addrs, s.dial)
	if err != nil {
		return err
	}
	defer client.Close()
	agent.Hold(ctx, agent.HoldConfig{
		Client: client, ReportInterval: s.interval, Random: mathrand.Float64, Now: time.Now,
		Logger: slog.New(slog.DiscardHandler), Observe: s.observe, Files: s.files,
		Fill: func(_ context.Context, r *nstancev1.ReportHealthRequest) {
			r.Version = "bench"
			r.Resources = &nstancev1.Resources{
				CpuPercent: 12.5, MemoryUsedBytes: 3 << 30, MemoryTotalBytes: 8 << 30,
				Load1: 0.5, Load5: 0.4, Load15: 0.3, DiskUsedBytes: 10 << 30, DiskTotalBytes: 50 << 30,
			}
		},
	})
	return nil
}

func (s *simulated) dial(ctx context.Context, addr string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return nil, fmt.Errorf("agent %s is dead", s.id)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	s.conn = conn
	return conn, err
}

// die cuts the connection as the kernel does for a killed process, and returns once that happened.
func (s *simulated) die() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
	at := time.Now()
	if s.conn != nil {
		s.conn.Close()
	}
	return at
}
