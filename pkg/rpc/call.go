package rpc

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/nstance/nstance/pkg/pki"
)

// call is one call or stream, and what was decided about it before anything of
// it was read.
type call struct {
	method   string
	unary    bool
	rule     Rule
	from     net.Addr
	conn     *peerConn
	caller   *pki.Caller // nil: no certificate that says who
	answer   error       // nil: it may go on
	intake   *intake
	admitted bool // to its handler
	look     bool // memory does not know the caller: the store is to be asked
	// Of who is being asked about: asked closes when that is over, and endLook, of
	// the call that asks, says so.
	asked   <-chan struct{}
	endLook func()
}

type callKey struct{}

// tap decides about a call when its headers have come, from memory alone: it
// runs under the transport's lock. The answer itself is given by the guard,
// because an error returned here leaves the timer of the call's own deadline
// behind, which a client may set to years.
func (g *guard) tap(stream context.Context, info *tap.Info) (context.Context, error) {
	c := &call{method: info.FullMethodName, unary: g.unary[info.FullMethodName], rule: g.config.Access[info.FullMethodName]}
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
		c.answer, c.look = noMessage(c.method), false // gRPC would wait for one on and on
	}
	if c.look {
		c.asked, c.endLook = g.peers.beginLook(c.conn.who)
	}
	if c.endLook != nil {
		context.AfterFunc(stream, c.endLook) // when the stream ends
	}
	return context.WithValue(ctx, callKey{}, c), nil
}

// tooLate refuses what the connection could not be kept waiting for. A look that
// goes on is nothing to a call that needs none.
func (g *guard) tooLate(c *call) {
	if c.answer != nil || c.conn.late == nil {
		return
	}
	if c.look || !errors.Is(c.conn.late, errLooking) {
		c.answer, c.look = c.conn.late, false
	}
}

// bound gives a call what ends it before its stream does. A call that is over its
// share ends by the guard's answer where the guard waits for its message; what
// reads messages on and on is cut off. The context ends with the stream's in any
// case.
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

// decide asks in this order: whether this server leads, who calls, how often,
// whether the method is for such a caller, and whether memory knows the caller
// as welcome.
func (g *guard) decide(c *call) error {
	if c.rule.LeaderOnly {
		if addr, leading := g.config.Gate.Leading(); !leading {
			return notLeader(addr)
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

// authenticate reads the caller from the certificate that the TLS handshake
// verified; no certificate is no error. The date is checked again because a
// connection can outlive the certificate it was opened with.
func (g *guard) authenticate(c *call) error {
	switch {
	case c.conn == nil:
		return Unauthenticated.Errorf("the call did not come over TLS")
	case errors.Is(c.conn.err, pki.ErrNoCertificate):
		return nil
	case c.conn.err != nil:
		return Unauthenticated.Errorf("read the client certificate: %w", c.conn.err)
	case g.config.Now().After(c.conn.caller.NotAfter):
		return Unauthenticated.Errorf("the client certificate expired at %s, while its connection was open: connect again with a new one",
			c.conn.caller.NotAfter.UTC().Format(time.RFC3339))
	}
	c.caller = &c.conn.caller
	return nil
}
