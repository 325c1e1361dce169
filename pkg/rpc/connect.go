package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/pki"
)

// ConnectError says why a client has no connection to an address. Its code is UNAVAILABLE.
type ConnectError struct {
	Addr string
	Err  error // of the dial, of the TLS handshake, or of a connection that ended
}

// Error says in one sentence what happened, and what to do.
func (e *ConnectError) Error() string {
	var host *net.DNSError
	switch err := e.Err; {
	case errors.Is(err, pki.ErrUntrusted):
		return fmt.Sprintf("no CA known here signed the certificate of %s: it is a server of another cluster, "+
			"or the cluster's CAs have changed; check the address, and renew ca.crt", e.Addr)
	case errors.Is(err, pki.ErrWrongPeer):
		return fmt.Sprintf("%s leads to %s: correct the address", e.Addr, reason(err, pki.ErrWrongPeer))
	case errors.Is(err, pki.ErrIdentity):
		return fmt.Sprintf("%s leads to a server of another cluster (%s): correct the address", e.Addr, reason(err, pki.ErrIdentity))
	case errors.Is(err, pki.ErrAddress):
		return fmt.Sprintf("the certificate of the server at %s does not name this host: use an address that it names, or set the server's "+
			"advertise address to this one", e.Addr)
	case errors.Is(err, pki.ErrExpired), errors.Is(err, pki.ErrNotYetValid):
		return fmt.Sprintf("the certificate of %s is not valid now (%v): check the clocks of both machines, and the server's log", e.Addr, err)
	case refusesCertificate(err):
		return fmt.Sprintf("%s refuses the certificate of this client (%s): it is of another cluster, or has expired; "+
			"check the address and the identity", e.Addr, bare(err))
	case e.otherProtocol():
		return fmt.Sprintf("%s does not answer as an Nstance server does (%v): another program listens there, such as a web server, "+
			"or it is another port of the server; correct the address", e.Addr, bare(err))
	case errors.As(err, &host) && host.IsNotFound:
		return fmt.Sprintf("there is no host %s: check the name in the address %s", host.Name, e.Addr)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return fmt.Sprintf("%s closed the connection: the server may have stopped; see its log", e.Addr)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%s did not answer within %s: check the address, that its machine is up, and the firewall between",
			e.Addr, connectTimeout)
	default:
		return fmt.Sprintf("no connection to %s (%s): check that the server is up, and the address", e.Addr, bare(err))
	}
}

// reason returns the text of an error behind that of its kind.
func reason(err, kind error) string { return strings.TrimPrefix(err.Error(), kind.Error()+": ") }

// bare returns an error without the address, which net.OpError repeats.
func bare(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		err = op.Err
	}
	return err.Error()
}

// Unwrap returns what happened.
func (e *ConnectError) Unwrap() error { return e.Err }

// GRPCStatus makes it UNAVAILABLE, as gRPC's own error is.
func (e *ConnectError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }

// otherProtocol reports whether something that does not speak TLS, or not gRPC, answered.
func (e *ConnectError) otherProtocol() bool {
	return errors.As(e.Err, new(tls.RecordHeaderError)) || errors.Is(e.Err, errNotHTTP2) || alert(e.Err) != "" && !refusesCertificate(e.Err)
}

// alert returns the TLS alert that the other side sent; empty: none. The type of an alert is not
// exported.
func alert(err error) string {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return ""
	}
	return op.Err.Error()
}

// refusesCertificate reports whether a TLS alert is about the certificate of this side.
func refusesCertificate(err error) bool {
	text := alert(err)
	return strings.Contains(text, "certificate") || strings.Contains(text, "access denied")
}

var errNotHTTP2 = errors.New("it does not speak HTTP/2")

// Misdirected reports whether err says that an address leads to something else than the server it
// should, or to one that refuses this side's certificate: unlike for a server that is down, there is
// nothing to wait for.
func Misdirected(err error) bool {
	var e *ConnectError
	if !errors.As(err, &e) {
		return false
	}
	for _, kind := range []error{pki.ErrUntrusted, pki.ErrWrongPeer, pki.ErrIdentity, pki.ErrAddress} {
		if errors.Is(e.Err, kind) {
			return true
		}
	}
	return e.otherProtocol() || refusesCertificate(e.Err)
}

// attempts keeps why the last attempt to connect to an address failed, or why the connection ended.
type attempts struct {
	addr string

	mu   sync.Mutex
	last error // nil: connected
}

func (a *attempts) set(err error) {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, context.Canceled) {
		return // this side ended it
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = err
}

func (a *attempts) get() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// Explain returns the error of a call on t as a ConnectError if there is no connection, and otherwise
// as it is.
func (t Target) Explain(err error) error {
	if status.Code(err) != codes.Unavailable || t.attempts == nil {
		return err
	}
	if errors.As(err, new(*ConnectError)) {
		return err
	}
	if _, notLeader := NotLeader(err); notLeader {
		return err
	}
	if last := t.attempts.get(); last != nil {
		return &ConnectError{Addr: t.Addr, Err: last}
	}
	return err
}

// dialer returns a dialer that notes its failures.
func (a *attempts) dialer(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	if dial == nil {
		// Keepalive is gRPC's.
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", addr)
		}
	}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := dial(ctx, addr)
		if err != nil {
			a.set(err)
		}
		return conn, err
	}
}

// notedCredentials note how handshakes and connections end.
type notedCredentials struct {
	credentials.TransportCredentials
	attempts *attempts
}

// ClientHandshake implements credentials.TransportCredentials.
func (c notedCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		if strings.Contains(err.Error(), "ALPN") { // gRPC's text: it has no kind for it
			err = fmt.Errorf("%w: %w", errNotHTTP2, err)
		}
		c.attempts.set(err)
		return nil, nil, err
	}
	return &notedConn{Conn: conn, attempts: c.attempts}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c notedCredentials) Clone() credentials.TransportCredentials {
	c.TransportCredentials = c.TransportCredentials.Clone()
	return c
}

// notedConn is a connection after its handshake. With TLS 1.3 a server refuses a certificate only in
// what it sends afterwards.
type notedConn struct {
	net.Conn
	attempts *attempts
	open     bool // owned by the reading goroutine
}

// lastWords bounds the read of what the other side sent before it closed the connection.
const lastWords = 100 * time.Millisecond

// Write implements net.Conn. When the other side has closed the connection, a write fails before its
// last words are read, and gRPC reads no more: they say why, such as that it refuses the certificate.
func (c *notedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		_ = c.SetReadDeadline(time.Now().Add(lastWords)) // without it, the read may take longer
		if _, why := c.Conn.Read(make([]byte, 1)); alert(why) != "" {
			c.attempts.set(why)
		}
	}
	return n, err
}

// Read implements net.Conn.
func (c *notedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.open {
		c.open = true
		c.attempts.set(nil)
	}
	if err != nil {
		c.attempts.set(err)
	}
	return n, err
}
