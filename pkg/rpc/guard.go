package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
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

// Judge says whether a caller who has the right role is welcome: whether its
// certificate stands for something that still exists. It is asked before each
// call and each stream, on a server that leads or for a call that needs no
// leader. It must be safe for concurrent use.
type Judge interface {
	// Known answers from memory and never blocks: it runs where a connection's
	// frames are read. ok is false when memory does not know the caller; Look
	// decides then. A verdict of nil is a welcome; of kind CertificateRevoked
	// (UNAUTHENTICATED to the caller, whom Revoked tells not to try again), a
	// refusal.
	Known(caller pki.Caller) (verdict error, ok bool)
	// Look asks the store. It returns nil, an error of kind CertificateRevoked, or
	// one of kind Unavailable when the store can't tell.
	Look(ctx context.Context, caller pki.Caller) error
}

// guard stands before every call.
type guard struct {
	config   ServerConfig
	limiter  *limiter
	peers    *peers
	refusals *refusals
	// What the methods are, by full name. Set while services are registered.
	unary, clientStream map[string]bool
}

func newGuard(c ServerConfig) *guard {
	return &guard{
		config: c, limiter: newLimiter(c.Limits.PerSource, c.Now), peers: newPeers(c.Limits, c.Now), refusals: newRefusals(c.Now),
		unary: make(map[string]bool), clientStream: make(map[string]bool),
	}
}

// stream runs each call, before anything of it is read.
func (g *guard) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	ctx := ss.Context()
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return status.Error(codes.Internal, "internal error: the call was not announced")
	}
	defer func() {
		err = g.finish(ctx, c, recover(), err)
		if c.intake != nil {
			c.conn.answered(c.intake.stream)
		}
	}()
	if err := g.admit(ctx, c); err != nil {
		return err
	}
	c.admitted = true
	if c.caller != nil {
		ctx = context.WithValue(ctx, callerKey{}, c.caller)
	}
	return handler(srv, &servedStream{ServerStream: ss, ctx: ctx, guard: g, call: c})
}

// admit decides whether a call may go on to its handler.
func (g *guard) admit(ctx context.Context, c *call) error {
	if c.answer != nil || !c.look {
		return c.answer
	}
	if c.endLook == nil { // another call has asked
		select {
		case <-c.asked:
		case <-ctx.Done():
			return ctx.Err()
		}
		if verdict, ok := g.config.Judge.Known(*c.caller); ok {
			return judged(c.caller, verdict)
		}
		return judged(c.caller, g.config.Judge.Look(ctx, *c.caller))
	}
	defer c.endLook()
	return judged(c.caller, g.config.Judge.Look(ctx, *c.caller))
}

func judged(caller *pki.Caller, verdict error) error {
	if verdict == nil {
		return nil
	}
	return fmt.Errorf("judge the certificate of %s %s: %w", caller.Role, caller.ID, verdict)
}

// finish turns the outcome into a status, and a panic into INTERNAL: one bad
// request must not end the process that keeps all instances.
func (g *guard) finish(ctx context.Context, c *call, panicked any, err error) error {
	if panicked != nil {
		g.config.Logger.LogAttrs(ctx, slog.LevelError, "a call panicked", slog.String("method", c.method),
			slog.Any("panic", panicked), slog.String("stack", string(debug.Stack())))
		return status.Error(codes.Internal, "internal error: the server's log says more")
	}
	answer := Status(err)
	switch code := status.Code(answer); {
	case code == codes.Internal || code == codes.Unknown:
		if attrs, ok := g.refusals.line(c, err); ok {
			g.config.Logger.LogAttrs(ctx, slog.LevelError, "a call failed", attrs...)
		}
	case c.refused(code):
		if attrs, ok := g.refusals.line(c, err); ok {
			g.config.Logger.LogAttrs(ctx, slog.LevelWarn, "refused a call", attrs...)
		}
	}
	return answer
}

func authorize(who Who, caller *pki.Caller, method string) error {
	switch {
	case who == Nobody:
		return Unimplemented.Errorf("%.120s is not served here", method)
	case who == Anyone:
		return nil
	case caller == nil:
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
	c, ok := ctx.Value(callerKey{}).(*pki.Caller)
	if !ok {
		return pki.Caller{}, false
	}
	return *c, true
}

// WithCaller returns a context as the handler of a call of this caller gets it.
func WithCaller(ctx context.Context, caller pki.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, &caller)
}
