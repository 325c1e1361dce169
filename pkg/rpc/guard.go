package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/pki"
)

// Gate tells who leads. It is asked on every leader-only call and must not
// block.
type Gate interface {
	// Leading reports whether this process leads, and if not the leader's address
	// for the service behind this gate; empty while none is known.
	Leading() (leaderAddr string, leading bool)
}

// RevokedFunc judges the certificate of a caller who has the right role, on a
// server that leads or for a call that needs no leader. It returns nil for a
// welcome caller, an error of kind CertificateRevoked for one whose instance is
// deleting, deleted or absent (UNAUTHENTICATED to the caller, whom Revoked tells
// not to try again), and one of kind Unavailable when it can't tell.
type RevokedFunc func(ctx context.Context, caller pki.Caller) error

// guard stands before every call.
type guard struct {
	config  ServerConfig
	limiter *limiter
}

func (g *guard) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer func() { err = g.finish(ctx, info.FullMethod, recover(), err) }()
	ctx, err = g.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (g *guard) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	ctx := ss.Context()
	defer func() { err = g.finish(ctx, info.FullMethod, recover(), err) }()
	ctx, err = g.admit(ctx, info.FullMethod)
	if err != nil {
		return err
	}
	return handler(srv, &streamWithContext{ServerStream: ss, ctx: ctx})
}

type streamWithContext struct {
	grpc.ServerStream
	ctx context.Context
}

// Context carries the caller.
func (s *streamWithContext) Context() context.Context { return s.ctx }

// finish turns the outcome into a status, and a panic into INTERNAL: one bad
// request must not end the process that keeps all instances.
func (g *guard) finish(ctx context.Context, method string, panicked any, err error) error {
	if panicked != nil {
		g.config.Logger.LogAttrs(ctx, slog.LevelError, "a call panicked", slog.String("method", method),
			slog.Any("panic", panicked), slog.String("stack", string(debug.Stack())))
		return status.Error(codes.Internal, "internal error: the server's log says more")
	}
	answer := Status(err)
	if code := status.Code(answer); code == codes.Internal || code == codes.Unknown {
		g.config.Logger.LogAttrs(ctx, slog.LevelError, "a call failed", slog.String("method", method), slog.Any("error", err))
	}
	return answer
}

// admit decides whether a call may go on to its handler, and returns the context
// that the handler gets, with the caller in it.
func (g *guard) admit(ctx context.Context, method string) (context.Context, error) {
	rule := g.config.Access[method]
	caller, known, err := g.authenticate(ctx)
	if err != nil {
		return nil, err
	}
	if !known {
		if err := g.limiter.allow(ctx); err != nil {
			return nil, err
		}
	}
	if err := authorize(rule.Who, caller, known, method); err != nil {
		return nil, err
	}
	if rule.LeaderOnly {
		if addr, leading := g.config.Gate.Leading(); !leading {
			return nil, notLeader(addr)
		}
	}
	if !known {
		return ctx, nil
	}
	if rule.Who != Anyone && g.config.Revoked != nil {
		if err := g.config.Revoked(ctx, caller); err != nil {
			return nil, fmt.Errorf("judge the certificate of %s %s: %w", caller.Role, caller.ID, err)
		}
	}
	return context.WithValue(ctx, callerKey{}, caller), nil
}

// authenticate reads the caller from the certificate that the TLS handshake
// verified; no certificate is no error. The date is checked again because a
// connection can outlive the certificate it was opened with.
func (g *guard) authenticate(ctx context.Context) (caller pki.Caller, known bool, err error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return pki.Caller{}, false, Unauthenticated.Errorf("the call came over no known connection")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return pki.Caller{}, false, Unauthenticated.Errorf("the call did not come over TLS")
	}
	caller, err = pki.ConnectionCaller(info.State, g.config.Cluster)
	switch {
	case errors.Is(err, pki.ErrNoCertificate):
		return pki.Caller{}, false, nil
	case err != nil:
		return pki.Caller{}, false, Unauthenticated.Errorf("read the client certificate: %w", err)
	case g.config.Now().After(caller.NotAfter):
		return pki.Caller{}, false, Unauthenticated.Errorf("the client certificate expired at %s, while its connection was open: connect again with a new one",
			caller.NotAfter.UTC().Format(time.RFC3339))
	}
	return caller, true, nil
}

func authorize(who Who, caller pki.Caller, known bool, method string) error {
	switch {
	case who == Nobody:
		return Unimplemented.Errorf("%s is not served here", method)
	case who == Anyone:
		return nil
	case !known:
		return Unauthenticated.Errorf("%s needs a client certificate of role %s: none was given", method, who)
	case who == Agent && caller.Role == pki.RoleAgent, who == Operator && caller.Role == pki.RoleOperator:
		return nil
	default:
		return Denied.Errorf("%s is for role %s: the client certificate is of role %s", method, who, caller.Role)
	}
}

type callerKey struct{}

// CallerFrom returns who makes the call that ctx belongs to; not ok on a method
// that anyone may call without a certificate.
func CallerFrom(ctx context.Context) (caller pki.Caller, ok bool) {
	caller, ok = ctx.Value(callerKey{}).(pki.Caller)
	return caller, ok
}

// WithCaller returns a context as a handler gets it, for tests of handlers
// without a connection.
func WithCaller(ctx context.Context, caller pki.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}
