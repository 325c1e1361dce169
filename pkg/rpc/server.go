package rpc

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/tracing"
)

// Both sides ping an idle connection after KeepaliveTime and close it if there is no answer
// within KeepaliveTimeout.
const (
	KeepaliveTime    = 20 * time.Second
	KeepaliveTimeout = 5 * time.Second
	// keepaliveMinTime is how often a client may ping at most: more often than these clients
	// do, so that a delayed ping followed by a punctual one is accepted.
	keepaliveMinTime = 10 * time.Second
)

// Buffer sizes per connection. Thousands of agents that send a message a minute should not
// hold 64 KiB each. Reading needs no buffer (0), because TLS reads whole records into its own;
// peerConn relies on that.
const (
	readBuffer  = 0
	writeBuffer = 4 << 10
)

// Flow-control windows per stream and per connection. They are the smallest possible, and
// fixed: windows that grow with throughput would let a client fill 16 MiB per stream.
const (
	streamWindow = 64 << 10
	connWindow   = 512 << 10
)

// ServerConfig is what NewServer needs.
type ServerConfig struct {
	TLS     *tls.Config // from package pki; TLS 1.3
	Cluster string      // callers with a certificate of another cluster are unauthenticated
	Access  Table       // usually Access()
	// Services registers the services. Each of their methods needs a row in Access, or
	// NewServer fails.
	Services func(grpc.ServiceRegistrar)
	Gate     Gate // required if a registered method is leader-only
	// Outage says since when this server can't write to object storage; nil, or empty: it can.
	// During an outage, calls that change something are refused.
	Outage func() string
	// Judge checks a caller's certificate beyond its signature and dates; nil: all callers are
	// admitted.
	Judge  Judge
	Limits Limits
	Now    func() time.Time // also checks certificate expiry on every call
	Logger *slog.Logger
	// Audit records each change and refusal; nil: a new audit log that uses Logger.
	Audit *audit.Log
	// Tracer makes a span of each call of an operator that changes something, or whose caller sent its
	// span; nil: none is made.
	Tracer *tracing.Tracer
	Name   string // of the listener, for refused handshakes; empty: its address
	Debug  bool   // register reflection
}

func (c ServerConfig) check() error {
	switch {
	case c.TLS == nil:
		return errors.New("new RPC server: no TLS config given")
	case c.Cluster == "":
		return errors.New("new RPC server: no cluster id given")
	case c.Services == nil:
		return errors.New("new RPC server: no services given")
	case c.Now == nil || c.Logger == nil:
		return errors.New("new RPC server: no clock or no logger given")
	}
	return nil
}

// NewServer returns a gRPC server with the given services and grpc.health.v1. Before it reads
// a call's message, it checks whether this server leads, the caller's certificate, its rate,
// the access table, and the Judge. It recovers panics, limits what each identity can use
// (Limits), and records refusals. Handler errors are converted by Status.
func NewServer(c ServerConfig) (*grpc.Server, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c.Limits = c.Limits.withDefaults()
	if c.Audit == nil {
		var err error
		if c.Audit, err = audit.New(audit.Config{Logger: c.Logger, Now: c.Now}); err != nil {
			return nil, fmt.Errorf("new RPC server: %w", err)
		}
	}
	g := newGuard(c)
	server := grpc.NewServer(options(c, g)...)
	r := registrar{Server: server, guard: g}
	c.Services(r)
	healthv1.RegisterHealthServer(r, health.NewServer())
	if c.Debug {
		reflection.Register(r)
	}
	if err := c.Access.check(server.GetServiceInfo(), c.Gate); err != nil {
		return nil, fmt.Errorf("new RPC server: %w", err)
	}
	return server, nil
}

func options(c ServerConfig, g *guard) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(peerCredentials{
			TransportCredentials: credentials.NewTLS(showing(c.TLS)), peers: g.peers, cluster: c.Cluster, name: c.Name, audit: c.Audit,
		}),
		grpc.InTapHandle(g.tap),
		grpc.ChainStreamInterceptor(g.stream),
		grpc.UnknownServiceHandler(unserved),
		grpc.ForceServerCodecV2(newMeasuringCodec()),
		grpc.MaxRecvMsgSize(c.Limits.MaxReceive),
		grpc.MaxHeaderListSize(c.Limits.MaxHeaderList),
		grpc.MaxConcurrentStreams(c.Limits.MaxStreams),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.ConnectionTimeout(c.Limits.HandshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle:     c.Limits.IdleTimeout,
			MaxConnectionAge:      c.Limits.MaxConnectionAge,
			MaxConnectionAgeGrace: c.Limits.ConnectionAgeGrace,
			Time:                  KeepaliveTime,
			Timeout:               KeepaliveTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             keepaliveMinTime,
			PermitWithoutStream: true,
		}),
		grpc.ReadBufferSize(readBuffer),
		grpc.WriteBufferSize(writeBuffer),
		grpc.HeaderTableSize(0), // header compression only pays for connections with many calls
	}
}
