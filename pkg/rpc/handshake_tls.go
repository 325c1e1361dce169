package rpc

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// NewTLSListener is tls.NewListener for an http.Server: what Accept returns has
// done its handshake, so that the server's own timeouts begin with the request
// and a handshake ends its share of the budget when it is over. A handshake
// takes timeout at most, and ends in vain with ctx. The listener should be one of
// Listen or Limit with Handshakes, which bound how many are in progress.
func NewTLSListener(ctx context.Context, l net.Listener, config *tls.Config, timeout time.Duration) net.Listener {
	t := &tlsListener{config: config, timeout: timeout}
	t.accepting = accepting[*tls.Conn]{
		Listener: l, take: func(raw net.Conn) { go t.handshake(ctx, raw) },
		ready: make(chan *tls.Conn), errs: make(chan error), done: make(chan struct{}),
	}
	return t
}

// tlsListener accepts connections whose handshake succeeded.
type tlsListener struct {
	accepting[*tls.Conn]
	config  *tls.Config
	timeout time.Duration
}

func (l *tlsListener) handshake(ctx context.Context, raw net.Conn) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	conn := tls.Server(raw, l.config)
	err := conn.HandshakeContext(ctx)
	if admitted, ok := raw.(*admittedConn); ok {
		err = admitted.finish(len(conn.ConnectionState().PeerCertificates) > 0, err)
	}
	if err != nil {
		raw.Close()
		return
	}
	select {
	case l.ready <- conn:
	case <-l.done:
		raw.Close()
	}
}

// Close closes the listener; handshakes under way end in vain.
func (l *tlsListener) Close() error {
	l.end.Do(func() { close(l.done) })
	return l.Listener.Close()
}
