package rpc

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/nstance/nstance/pkg/audit"
)

// NewTLSListener is like tls.NewListener, for an http.Server: connections returned by Accept
// have completed their handshake, so that the server's timeouts start with the request, and a
// handshake frees its share of the limits as soon as it ends. A handshake is aborted after
// timeout or when ctx ends. The listener should be from Listen or Limit with Handshakes, to
// limit handshakes in progress. Refused handshakes are recorded in log, under the listener's
// name.
func NewTLSListener(
	ctx context.Context, l net.Listener, config *tls.Config, timeout time.Duration, name string, log *audit.Log,
) net.Listener {
	t := &tlsListener{config: showing(config), timeout: timeout, name: name, log: log}
	t.accepting = accepting[*tls.Conn]{
		Listener: l, take: func(raw net.Conn) { go t.handshake(ctx, raw) },
		ready: make(chan *tls.Conn), errs: make(chan error), done: make(chan struct{}),
	}
	return t
}

// tlsListener accepts connections whose handshake has succeeded.
type tlsListener struct {
	accepting[*tls.Conn]
	config  *tls.Config
	timeout time.Duration
	name    string
	log     *audit.Log
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
		if e, ok := refusedHandshake(l.name, raw, err); ok {
			l.log.Record(ctx, e)
		}
		raw.Close()
		return
	}
	select {
	case l.ready <- conn:
	case <-l.done:
		raw.Close()
	}
}

// Close closes the listener and aborts handshakes in progress.
func (l *tlsListener) Close() error {
	l.end.Do(func() { close(l.done) })
	return l.Listener.Close()
}
