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
)

// Both sides ping a silent connection after KeepaliveTime and give it up when no
// answer comes within KeepaliveTimeout.
const (
	KeepaliveTime    = 20 * time.Second
	KeepaliveTimeout = 5 * time.Second
	// keepaliveMinTime is how often a client may ping at most: more often than
	// ours do, so that a delayed ping followed by a punctual one is no offence.
	keepaliveMinTime = 10 * time.Second
)

// The connection's own buffers. Thousands of agents that say something once a
// minute should not hold 64 KiB each. Reading needs none (0: no buffer), because
// TLS reads whole records into one of its own; peerConn counts on that.
const (
	readBuffer  = 0
	writeBuffer = 4 << 10
)

// What a client may send before anybody reads it, of one stream and of all
// streams of a connection. The smallest there is, and it stays: the windows that
// grow with the throughput let a client fill 16 MiB for each stream.
const (
	streamWindow = 64 << 10
	connWindow   = 512 << 10
)

// ServerConfig is what NewServer needs.
type ServerConfig struct {
	TLS     *tls.Config // from package pki; TLS 1.3
	Cluster string      // callers with a certificate of another cluster are not authenticated
	Access  Table       // usually Access()
	// Services registers the services. Every method of theirs needs a row in
	// Access, or NewServer fails.
	Services func(grpc.ServiceRegistrar)
	Gate     Gate // needed as soon as a registered method is leader-only
	// Judge judges a caller's certificate beyond its signature and dates; nil: all
	// are welcome.
	Judge  Judge
	Limits Limits
	Now    func() time.Time // certificates are judged by it again on every call
	Logger *slog.Logger
	Debug  bool // register reflection
}

func (c ServerConfig) check() error {
	switch {
	case c.TLS == nil:
		return errors.New("make an RPC server: no TLS config given")
	case c.Cluster == "":
		return errors.New("make an RPC server: no cluster id given")
	case c.Services == nil:
		return errors.New("make an RPC server: no services given")
	case c.Now == nil || c.Logger == nil:
		return errors.New("make an RPC server: no clock or no logger given")
	}
	return nil
}

// NewServer makes a gRPC server that serves the given services and
// grpc.health.v1. Before it reads a byte of a call's message, it asks whether
// this server leads, who calls, whether that source calls too often, whether the
// access table lets such a caller in, and whether the Judge does. It recovers
// panics, bounds what each identity can take of it (Limits), and logs what it
// refuses. What a handler returns goes through Status.
func NewServer(c ServerConfig) (*grpc.Server, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c.Limits = c.Limits.withDefaults()
	g := newGuard(c)
	server := grpc.NewServer(options(c, g)...)
	r := registrar{Server: server, guard: g}
	c.Services(r)
	healthv1.RegisterHealthServer(r, health.NewServer())
	if c.Debug {
		reflection.Register(r)
	}
	if err := c.Access.check(server.GetServiceInfo(), c.Gate); err != nil {
		return nil, fmt.Errorf("make an RPC server: %w", err)
	}
	return server, nil
}

func options(c ServerConfig, g *guard) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(peerCredentials{TransportCredentials: credentials.NewTLS(c.TLS), peers: g.peers, cluster: c.Cluster}),
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
		grpc.HeaderTableSize(0), // to remember headers pays for connections that make many calls
	}
}
