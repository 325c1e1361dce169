package rpc

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/pki"
)

// peerCredentials identify the peers of a server's connections, and tell admitted connections
// how their handshakes ended.
type peerCredentials struct {
	credentials.TransportCredentials
	peers   *peers
	cluster string
	name    string // of the listener
	audit   *audit.Log
}

// ServerHandshake does the handshake and reads the caller.
func (c peerCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	tlsInfo, ok := info.(credentials.TLSInfo)
	if err == nil && !ok {
		err = errors.New("the connection does not use TLS")
	}
	if admitted, ok := raw.(*admittedConn); ok {
		err = admitted.finish(len(tlsInfo.State.PeerCertificates) > 0, err)
	}
	if err != nil {
		if e, ok := refusedHandshake(c.name, raw, err); ok {
			c.audit.Record(context.Background(), e)
		}
		raw.Close()
		return nil, nil, err
	}
	p := newPeerConn(conn, c.peers, tlsInfo, c.cluster)
	return p, &peerInfo{CommonAuthInfo: tlsInfo.CommonAuthInfo, conn: p}, nil
}

// Clone implements credentials.TransportCredentials.
func (c peerCredentials) Clone() credentials.TransportCredentials {
	c.TransportCredentials = c.TransportCredentials.Clone()
	return c
}

// strangerOpens limits how often a connection without an identity may open streams. It is per
// connection, because many may share a source.
func strangerOpens() Rate { return Rate{PerSecond: 20, Burst: 40} }

// idleFrames limits frames without content per connection: all but HEADERS and DATA, and empty
// DATA frames.
func idleFrames() Rate { return Rate{PerSecond: 1000, Burst: 2000} }

// maxFlood is how many delayed content-free frames, about five seconds of them, close a
// connection.
const maxFlood = 5000

// peerInfo is what the calls on a connection know about it.
type peerInfo struct {
	credentials.CommonAuthInfo
	conn *peerConn
}

// AuthType implements credentials.AuthInfo.
func (*peerInfo) AuthType() string { return "tls" }

// peerConn is a connection after its handshake. It sees everything that is read, so that bytes
// are counted before they take memory, and so that a peer can be throttled at no cost, by not
// reading.
type peerConn struct {
	net.Conn
	peers  *peers
	who    identity
	spiffe string     // from the certificate; empty: none
	caller pki.Caller // valid if err is nil
	err    error      // pki.ErrNoCertificate, or why the certificate identifies no caller

	closed chan struct{}
	leave  func()
	gone   bool // guarded by peers.mu

	// Owned by the reading goroutine, which also runs the tap.
	scanner frameScanner
	joined  bool
	opening frame  // the last HEADERS frame
	late    error  // why the stream that it opens is refused
	opens   bucket // of streams, for peers without an identity
	idle    bucket // of frames without content
	flood   int    // delayed frames since the bucket was last half full

	// Owned by the writing goroutine.
	sent   frameScanner
	ending []*time.Timer // of streams whose ends are being written

	mu      sync.Mutex
	intakes map[uint32]*intake // by stream; nil: closed
}

func newPeerConn(conn net.Conn, p *peers, info credentials.TLSInfo, cluster string) *peerConn {
	c := &peerConn{Conn: conn, peers: p, closed: make(chan struct{}), intakes: make(map[uint32]*intake)}
	c.opens, c.idle = newBucket(strangerOpens(), p.now()), newBucket(idleFrames(), p.now())
	c.sent.preface = prefaceLength // servers send no preface (RFC 9113, 3.4)
	c.leave = sync.OnceFunc(func() { close(c.closed); c.endAll(); p.leave(c) })
	c.caller, c.err = pki.ConnectionCaller(info.State, cluster)
	if certs := info.State.PeerCertificates; len(certs) > 0 && len(certs[0].URIs) > 0 {
		c.spiffe = certs[0].URIs[0].String()
	}
	switch certs := info.State.PeerCertificates; {
	case c.err == nil:
		c.who.spiffe = c.spiffe
	case len(certs) > 0:
		// Not the ID in the certificate: it may be another caller's.
		c.who.spiffe = fmt.Sprintf("certificate %x", sha256.Sum256(certs[0].Raw))
	default:
		c.who.source, _ = sourceOfAddr(conn.RemoteAddr())
	}
	return c
}

// Read implements net.Conn. The transport has no read buffer (readBuffer), so it acts on what
// it reads at once.
func (c *peerConn) Read(p []byte) (int, error) {
	if !c.joined {
		c.joined = true
		c.peers.join(c)
	}
	n, err := c.Conn.Read(p)
	c.scanner.scan(p[:n], c.comes)
	return n, err
}

func (c *peerConn) comes(f frame) {
	switch f.kind {
	case frameHeaders:
		c.opening = f
		c.pause()
		return
	case frameData:
		if f.length == 0 {
			c.idleFrame()
		}
		c.mu.Lock()
		s := c.intakes[f.stream]
		c.mu.Unlock()
		if s != nil {
			s.count(f.length)
		}
	case frameReset:
		if s := c.end(f.stream); s != nil && s.unread != nil {
			s.unread.Stop()
		}
		c.idleFrame()
	default:
		c.idleFrame()
	}
}

// Write implements net.Conn. A stream is counted until its end is written: until then its data
// takes memory, even though its handler has returned, and a client that does not read delays
// it.
func (c *peerConn) Write(p []byte) (int, error) {
	// Before the peer can see the end, because its next call may need the room; the transport
	// has already dropped the stream.
	c.sent.scan(p, func(f frame) {
		if !f.endsStream() && f.kind != frameReset {
			return
		}
		if s := c.end(f.stream); s != nil && s.unread != nil {
			c.ending = append(c.ending, s.unread)
		}
	})
	n, err := c.Conn.Write(p)
	for _, unread := range c.ending {
		unread.Stop()
	}
	c.ending = c.ending[:0]
	return n, err
}

// pause throttles a peer that opens streams too fast, or that is being looked up in the store.
// Nothing else on the connection is read meanwhile, pings included, so the pause is short:
// late is the error of the stream being opened if it was not long enough.
func (c *peerConn) pause() {
	c.late = nil
	limits := c.peers.limits
	if c.err != nil {
		wait, _ := c.opens.reserve(strangerOpens(), c.peers.now(), limits.MaxPause)
		c.wait(nil, wait)
	} else if limits.Opens.limits() {
		wait, ok := c.peers.opens.reserve(c.who, limits.MaxPause)
		c.wait(nil, wait)
		if !ok {
			c.late = Exhausted.Errorf("more than %g calls a second from one identity: slow down and try again", limits.Opens.PerSecond)
			return
		}
	}
	if over := c.peers.checking(c.who); over != nil && !c.wait(over, limits.MaxPause) {
		c.late = errLooking
	}
}

// idleFrame throttles a peer that sends more frames without content than any library does,
// since each costs the transport a little, and closes the connection if the peer does not
// stop.
func (c *peerConn) idleFrame() {
	rate := idleFrames()
	wait, _ := c.idle.reserve(rate, c.peers.now(), c.peers.limits.MaxPause)
	switch {
	case wait > 0:
		c.wait(nil, wait)
		if c.flood++; c.flood == maxFlood {
			go c.Close() //nolint:errcheck // there is no caller to report to
		}
	case c.idle.tokens > float64(rate.Burst)/2:
		c.flood = 0
	}
}

var errLooking = Unavailable.Errorf("the caller is still being looked up in the store: try again")

// wait waits for over, and reports whether it was closed within limit.
func (c *peerConn) wait(over <-chan struct{}, limit time.Duration) bool {
	if limit <= 0 {
		return false
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-over:
		return true
	case <-timer.C:
	case <-c.closed:
	}
	return false
}

// Close implements net.Conn.
func (c *peerConn) Close() error {
	c.leave()
	return c.Conn.Close()
}

// open counts the stream that is being opened. It is called by the tap, so that is the stream
// of the last HEADERS frame.
func (c *peerConn) open(s *intake) {
	s.conn, s.stream = c, c.opening.stream
	c.mu.Lock()
	if c.intakes == nil { // the connection was closed during the pause, so nothing else would end it
		s.end()
	} else {
		c.intakes[s.stream] = s
	}
	c.mu.Unlock()
}

// answered closes the connection if a stream does not end within AnswerTimeout after its
// handler returned: the client does not read the answer, which takes memory.
func (c *peerConn) answered(stream uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.intakes[stream]; s != nil {
		s.unread = time.AfterFunc(c.peers.limits.AnswerTimeout, func() { c.Close() }) //nolint:errcheck // there is no caller to report to
	}
}

func (c *peerConn) end(stream uint32) *intake {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.intakes[stream]
	if s != nil {
		delete(c.intakes, stream)
		s.end()
	}
	return s
}

func (c *peerConn) endAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.intakes {
		s.end()
		if s.unread != nil {
			s.unread.Stop()
		}
	}
	c.intakes = nil
}
