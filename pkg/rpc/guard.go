package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/pki"
)

// Gate tells whether this server leads. It is called on every leader-only call and must not
// block.
type Gate interface {
	// Leading reports whether this process leads, and otherwise returns the leader's address
	// for the service behind this gate, or an empty string if unknown.
	Leading() (leaderAddr string, leading bool)
}

// Judge decides whether a caller with the right role is still admitted: whether the owner of
// its certificate still exists. It is called before each call and each stream that this server
// may answer. Safe for concurrent use.
type Judge interface {
	// Known answers from memory and never blocks: it runs where a connection's frames are
	// read. ok is false if memory does not know the caller; then Verify decides. A nil verdict
	// admits the caller; one of kind CertificateRevoked (UNAUTHENTICATED, which Revoked
	// recognises as final) refuses it.
	Known(caller pki.Caller) (verdict error, ok bool)
	// Verify reads the store. It returns nil, an error of kind CertificateRevoked, or one of
	// kind Unavailable if the store can't be read.
	Verify(ctx context.Context, caller pki.Caller) error
}

// guard checks every call.
type guard struct {
	config  ServerConfig
	limiter *limiter
	peers   *peers
	audit   *audit.Log
	audited map[string]audit.Kind
	// Methods by full name. Set while services are registered.
	served, unary, clientStream map[string]bool
}

func newGuard(c ServerConfig) *guard {
	return &guard{
		config: c, limiter: newLimiter(c.Limits.PerSource, c.Now), peers: newPeers(c.Limits, c.Now),
		audit: c.Audit, audited: Audited(),
		served: make(map[string]bool), unary: make(map[string]bool), clientStream: make(map[string]bool),
	}
}

// stream handles each call, before its message is read.
func (g *guard) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	ctx := ss.Context()
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return status.Error(codes.Internal, "internal error: the call did not pass the tap")
	}
	end := func(error) {} // of its span
	defer func() {
		err = g.finish(ctx, c, recover(), err)
		end(err)
		if c.intake != nil {
			c.conn.answered(c.intake.stream)
		}
	}()
	if err := g.admit(ctx, c); err != nil {
		return err
	}
	c.admitted = true
	ctx = audit.WithNote(ctx, &c.note)
	if c.caller != nil {
		ctx = context.WithValue(ctx, callerKey{}, c.caller)
	}
	if c.unary && c.rule.Who == Operator { // another caller can't choose a trace
		ctx, end = g.config.Tracer.Call(ctx, c.method, c.changes)
	}
	return handler(srv, &servedStream{ServerStream: ss, ctx: ctx, guard: g, call: c})
}

// admit decides whether a call may proceed to its handler.
func (g *guard) admit(ctx context.Context, c *call) error {
	if c.answer != nil || !c.look {
		return c.answer
	}
	if c.endLook == nil { // another call is looking the caller up
		select {
		case <-c.asked:
		case <-ctx.Done():
			return ctx.Err()
		}
		if verdict, ok := g.config.Judge.Known(*c.caller); ok {
			return judged(c.caller, verdict)
		}
		return judged(c.caller, g.config.Judge.Verify(ctx, *c.caller))
	}
	defer c.endLook()
	return judged(c.caller, g.config.Judge.Verify(ctx, *c.caller))
}

func judged(caller *pki.Caller, verdict error) error {
	if verdict == nil {
		return nil
	}
	return fmt.Errorf("check the certificate of %s %s: %w", caller.Role, caller.ID, verdict)
}

// finish converts the outcome to a status, and a panic to INTERNAL: one bad request must not
// end the process.
func (g *guard) finish(ctx context.Context, c *call, panicked any, err error) error {
	if panicked != nil {
		g.config.Logger.LogAttrs(ctx, slog.LevelError, "call panicked", slog.String("method", c.method),
			slog.Any("panic", panicked), slog.String("stack", string(debug.Stack())))
		g.record(ctx, c, audit.Failed, fmt.Errorf("panic: %v", panicked))
		return status.Error(codes.Internal, "internal error: see the server's log")
	}
	answer := Status(err)
	switch code := status.Code(answer); {
	case code == codes.Internal || code == codes.Unknown:
		g.record(ctx, c, audit.Failed, err)
	case c.refused(code, err):
		g.record(ctx, c, audit.Refused, err)
	case code == codes.OK && c.changes:
		g.record(ctx, c, audit.Accepted, nil)
	case c.mayHaveLanded(code, answer):
		g.record(ctx, c, audit.Unknown, err)
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
		return Unauthenticated.Errorf("%s requires a client certificate of role %s, but none was given", method, who)
	case who == Agent && caller.Role == pki.RoleAgent, who == Operator && caller.Role == pki.RoleOperator:
		return nil
	default:
		return Denied.Errorf("%s requires role %s, but the client certificate has role %s", method, who, caller.Role)
	}
}

type callerKey struct{}

// CallerFrom returns the caller of the call that ctx belongs to; ok is false for a method that
// may be called without a certificate.
func CallerFrom(ctx context.Context) (caller pki.Caller, ok bool) {
	c, ok := ctx.Value(callerKey{}).(*pki.Caller)
	if !ok {
		return pki.Caller{}, false
	}
	return *c, true
}

// WithCaller returns the context that the handler of a call of this caller gets.
func WithCaller(ctx context.Context, caller pki.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, &caller)
}
