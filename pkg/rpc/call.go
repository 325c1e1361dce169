package rpc

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/pki"
)

// call is one call or stream, and the decision that was made before its message was read.
type call struct {
	method   string
	unary    bool
	rule     Rule
	from     net.Addr
	conn     *peerConn
	caller   *pki.Caller // nil: no certificate that identifies the caller
	answer   error       // nil: the call may proceed
	intake   *intake
	admitted bool // to the handler
	changes  bool // its method is audited
	note     audit.Note
	look     bool // memory does not know the caller: look it up in the store
	// While the caller is being looked up: asked is closed when the lookup ends. endLook, set
	// for the call that does the lookup, ends it.
	asked   <-chan struct{}
	endLook func()
}

type callKey struct{}

// tap decides about a call from memory when its headers arrive: it runs under the transport's
// lock. The guard returns the answer, because an error returned here would leave the timer of
// the call's deadline behind, and a client may set a deadline of years.
func (g *guard) tap(stream context.Context, info *tap.Info) (context.Context, error) {
	c := &call{method: info.FullMethodName, unary: g.unary[info.FullMethodName], rule: g.config.Access[info.FullMethodName]}
	if !g.served[c.method] {
		c.rule = Rule{}
	}
	_, c.changes = g.audited[c.method]
	ctx, cancel := g.bound(stream, c)
	if p, ok := peer.FromContext(stream); ok {
		c.from = p.Addr
		if info, ok := p.AuthInfo.(*peerInfo); ok {
			c.conn = info.conn
			c.intake = &intake{peers: g.peers, who: c.conn.who, over: make(chan struct{}), cancel: cancel}
			c.conn.open(c.intake)
		}
	}
	c.answer = g.decide(c)
	g.tooLate(c)
	if c.answer == nil && c.conn.opening.endsStream() && !g.clientStream[c.method] {
		c.answer, c.look = noMessage(c.method), false // otherwise gRPC waits for a message
	}
	if c.look {
		c.asked, c.endLook = g.peers.startCheck(c.conn.who)
	}
	if c.endLook != nil {
		context.AfterFunc(stream, c.endLook) // when the stream ends
	}
	return context.WithValue(ctx, callKey{}, c), nil
}

// tooLate refuses a call if the connection could not be paused long enough for it. A lookup in
// progress does not matter to a call that needs none.
func (g *guard) tooLate(c *call) {
	if c.answer != nil || c.conn.late == nil {
		return
	}
	if c.look || !errors.Is(c.conn.late, errLooking) {
		c.answer, c.look = c.conn.late, false
	}
}

// bound derives the context that ends a call before its stream ends. A call over its share is
// ended by the guard's answer while the guard waits for its message; a handler that reads many
// messages is canceled. The context always ends with the stream's.
func (g *guard) bound(stream context.Context, c *call) (ctx context.Context, cutOff context.CancelFunc) {
	switch {
	case g.clientStream[c.method]:
		return context.WithCancel(stream)
	case c.unary:
		ctx, cancel := context.WithTimeout(stream, g.config.Limits.CallTimeout)
		context.AfterFunc(stream, cancel)
		return ctx, nil
	default:
		return stream, nil
	}
}

// decide checks, in this order: this server leads, the caller's certificate, its rate, its
// role, that changes are possible now, and whether memory knows the caller as admitted.
func (g *guard) decide(c *call) error {
	if c.rule.LeaderOnly {
		if addr, leading := g.config.Gate.Leading(); !leading {
			return notLeader(addr, g.outage())
		}
	}
	if err := g.authenticate(c); err != nil {
		return err
	}
	if c.caller == nil {
		if err := g.limiter.allow(c.from); err != nil {
			return err
		}
	}
	if err := authorize(c.rule.Who, c.caller, c.method); err != nil {
		return err
	}
	if outage := g.outage(); c.changes && outage != "" {
		return noChanges(outage)
	}
	if c.caller == nil || c.rule.Who == Anyone || g.config.Judge == nil {
		return nil
	}
	verdict, ok := g.config.Judge.Known(*c.caller)
	c.look = !ok
	if !ok {
		return nil
	}
	return judged(c.caller, verdict)
}

// outage returns the config's Outage; empty if that is not set.
func (g *guard) outage() string {
	if g.config.Outage == nil {
		return ""
	}
	return g.config.Outage()
}

// authenticate returns the caller from the certificate verified in the TLS handshake; no
// certificate is no error. The expiry is checked again because a connection may outlive its
// certificate.
func (g *guard) authenticate(c *call) error {
	switch {
	case c.conn == nil:
		return Unauthenticated.Errorf("the call did not use TLS")
	case errors.Is(c.conn.err, pki.ErrNoCertificate):
		return nil
	case c.conn.err != nil:
		return Unauthenticated.Errorf("read the client certificate: %w", c.conn.err)
	case g.config.Now().After(c.conn.caller.NotAfter):
		return Unauthenticated.Errorf("the client certificate expired at %s while its connection was open: reconnect with a new one",
			c.conn.caller.NotAfter.UTC().Format(time.RFC3339))
	}
	c.caller = &c.conn.caller
	return nil
}
