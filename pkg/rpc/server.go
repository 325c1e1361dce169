package rpc

import (
	"context"
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
	"google.golang.org/grpc/tap"
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
// TLS reads whole records into one of its own.
const (
	readBuffer  = 0
	writeBuffer = 4 << 10
)

// Limits bound what one peer can make the server do. A zero field takes the
// value of DefaultLimits, but where it says that zero is no limit.
type Limits struct {
	MaxReceive       int           // bytes of one message
	MaxHeaderList    uint32        // bytes of one call's metadata (RFC 9113, SETTINGS_MAX_HEADER_LIST_SIZE)
	MaxStreams       uint32        // calls under way on one connection
	HandshakeTimeout time.Duration // from the accepted connection to the end of the HTTP/2 preface
	IdleTimeout      time.Duration // a connection without any call is closed
	PerSource        Rate          // calls without a client certificate, per source address

	// CallTimeout ends every call, streams too, counted from its headers, so that
	// a request whose end never comes is given up. Zero is no limit.
	CallTimeout time.Duration
	// MaxConnectionAge is how long a connection takes calls, give or take a tenth;
	// calls under way have ConnectionAgeGrace more. Zero is no limit.
	MaxConnectionAge   time.Duration
	ConnectionAgeGrace time.Duration
}

// DefaultLimits suit agents.
func DefaultLimits() Limits {
	return Limits{
		MaxReceive:       1 << 20,
		MaxHeaderList:    16 << 10,
		MaxStreams:       100,
		HandshakeTimeout: 10 * time.Second,
		IdleTimeout:      5 * time.Minute,
	}
}

// OperatorLimits allow larger requests, because groups carry vars.
func OperatorLimits() Limits {
	l := DefaultLimits()
	l.MaxReceive = 4 << 20
	return l
}

// RegistrationLimits keep what anybody may hold without a certificate small and
// short: a registration is one call of a few kilobytes.
func RegistrationLimits() Limits {
	l := DefaultLimits()
	l.MaxReceive = 16 << 10
	l.MaxStreams = 4
	l.PerSource = RegistrationRate()
	l.CallTimeout = 30 * time.Second
	l.MaxConnectionAge = 30 * time.Second
	l.ConnectionAgeGrace = 10 * time.Second
	return l
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	l.MaxReceive = orDefault(l.MaxReceive, d.MaxReceive)
	l.MaxHeaderList = orDefault(l.MaxHeaderList, d.MaxHeaderList)
	l.MaxStreams = orDefault(l.MaxStreams, d.MaxStreams)
	l.HandshakeTimeout = orDefault(l.HandshakeTimeout, d.HandshakeTimeout)
	l.IdleTimeout = orDefault(l.IdleTimeout, d.IdleTimeout)
	return l
}

func orDefault[T int | uint32 | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}

// ServerConfig is what NewServer needs.
type ServerConfig struct {
	TLS     *tls.Config // from package pki; TLS 1.3
	Cluster string      // callers with a certificate of another cluster are not authenticated
	Access  Table       // usually Access()
	// Services registers the services. Every method of theirs needs a row in
	// Access, or NewServer fails.
	Services func(grpc.ServiceRegistrar)
	Gate     Gate // needed as soon as a registered method is leader-only
	// Revoked judges a caller's certificate beyond its signature and dates, before
	// each call and each stream; nil: all are welcome. See RevokedFunc.
	Revoked RevokedFunc
	Limits  Limits
	Now     func() time.Time // certificates are judged by it again on every call
	Logger  *slog.Logger
	Debug   bool // register reflection
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
// grpc.health.v1, and lets a call through in this order: it recovers panics,
// counts the call against its source, authenticates the caller, asks the access
// table, then whether this server leads, then whether the certificate is
// revoked. What a handler returns goes through Status.
func NewServer(c ServerConfig) (*grpc.Server, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c.Limits = c.Limits.withDefaults()
	g := &guard{config: c, limiter: newLimiter(c.Limits.PerSource, c.Now)}
	server := grpc.NewServer(options(c, g)...)
	c.Services(server)
	healthv1.RegisterHealthServer(server, health.NewServer())
	if c.Debug {
		reflection.Register(server)
	}
	registered := server.GetServiceInfo()
	if err := c.Access.check(registered); err != nil {
		return nil, fmt.Errorf("make an RPC server: %w", err)
	}
	if c.Gate == nil && c.Access.leaderOnly(registered) {
		return nil, errors.New("make an RPC server: it has leader-only methods but nothing tells who leads")
	}
	return server, nil
}

func options(c ServerConfig, g *guard) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.Creds(credentials.NewTLS(c.TLS)),
		grpc.ChainUnaryInterceptor(g.unary),
		grpc.ChainStreamInterceptor(g.stream),
		grpc.MaxRecvMsgSize(c.Limits.MaxReceive),
		grpc.MaxHeaderListSize(c.Limits.MaxHeaderList),
		grpc.MaxConcurrentStreams(c.Limits.MaxStreams),
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
	}
	if c.Limits.CallTimeout > 0 {
		options = append(options, grpc.InTapHandle(limitCalls(c.Limits.CallTimeout)))
	}
	return options
}

// limitCalls sets the deadline before a call's message is read: an interceptor
// runs only once the message is there whole.
func limitCalls(timeout time.Duration) tap.ServerInHandle {
	return func(stream context.Context, _ *tap.Info) (context.Context, error) {
		ctx, cancel := context.WithTimeout(stream, timeout)
		context.AfterFunc(stream, cancel) // the stream's own end frees the timer
		return ctx, nil
	}
}
