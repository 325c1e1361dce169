package rpc

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/nstance/nstance/pkg/pki"
)

// peerCredentials make the connections of a server know whom they belong to, and
// tell an admitted connection how its handshake ended.
type peerCredentials struct {
	credentials.TransportCredentials
	peers   *peers
	cluster string
}

// ServerHandshake makes the handshake and reads the caller.
func (c peerCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	tlsInfo, ok := info.(credentials.TLSInfo)
	if err == nil && !ok {
		err = errors.New("the connection is not of TLS")
	}
	if admitted, ok := raw.(*admittedConn); ok {
		err = admitted.finish(len(tlsInfo.State.PeerCertificates) > 0, err)
	}
	if err != nil {
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

// strangerOpens is how often a connection without an identity opens a stream: not
// per source, which many may share.
func strangerOpens() Rate { return Rate{PerSecond: 20, Burst: 40} }

// idleFrames is how many frames a connection sends that carry nothing: all but
// HEADERS and DATA, and DATA without any.
func idleFrames() Rate { return Rate{PerSecond: 1000, Burst: 2000} }

// maxFlood of those frames that had to wait, about five seconds of them, end a
// connection.
const maxFlood = 5000

// peerInfo is what the calls of a connection know of it.
type peerInfo struct {
	credentials.CommonAuthInfo
	conn *peerConn
}

// AuthType implements credentials.AuthInfo.
func (*peerInfo) AuthType() string { return "tls" }

// peerConn is a connection after its handshake. What is read from it passes by
// here first, so that its bytes are counted before they take memory, and so that
// it can be kept waiting at no cost: by not being read.
type peerConn struct {
	net.Conn
	peers  *peers
	who    identity
	spiffe string     // of the certificate; empty: none
	caller pki.Caller // when err is nil
	err    error      // pki.ErrNoCertificate, or why the certificate says nothing

	closed chan struct{}
	leave  func()
	gone   bool // under peers.mu

	// Of the goroutine that reads the connection, in which the tap runs too.
	scanner frameScanner
	joined  bool
	opening frame  // the last HEADERS frame
	late    error  // why the stream that it opens is not served
	opens   bucket // of streams, without an identity
	idle    bucket // of frames that carry nothing
	flood   int    // how many of those had to wait since there was plenty of room

	// Of the goroutine that writes the connection.
	sent   frameScanner
	ending []*time.Timer // of the streams whose ends are being written

	mu      sync.Mutex
	intakes map[uint32]*intake // by stream; nil: closed
}

func newPeerConn(conn net.Conn, p *peers, info credentials.TLSInfo, cluster string) *peerConn {
	c := &peerConn{Conn: conn, peers: p, closed: make(chan struct{}), intakes: make(map[uint32]*intake)}
	c.opens, c.idle = newBucket(strangerOpens(), p.now()), newBucket(idleFrames(), p.now())
	c.sent.preface = prefaceLength // which servers send none of (RFC 9113, 3.4)
	c.leave = sync.OnceFunc(func() { close(c.closed); c.endAll(); p.leave(c) })
	c.caller, c.err = pki.ConnectionCaller(info.State, cluster)
	if certs := info.State.PeerCertificates; len(certs) > 0 && len(certs[0].URIs) > 0 {
		c.spiffe = certs[0].URIs[0].String()
	}
	switch certs := info.State.PeerCertificates; {
	case c.err == nil:
		c.who.spiffe = c.spiffe
	case len(certs) > 0:
		// Not by what it says: that may be the name of another.
		c.who.spiffe = fmt.Sprintf("certificate %x", sha256.Sum256(certs[0].Raw))
	default:
		c.who.source, _ = sourceOfAddr(conn.RemoteAddr())
	}
	return c
}

// Read implements net.Conn. The transport has no buffer of its own for reading
// (readBuffer), so what it reads next is what it acts on next.
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
			s.take(f.length)
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

// Write implements net.Conn. A stream is counted until its end goes out: what is
// sent to it before that takes memory, though its handler has returned, and so
// does what its client does not let out.
func (c *peerConn) Write(p []byte) (int, error) {
	// Before its caller can know, whose next call may need the room; by then the
	// transport has forgotten the stream.
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

// pause keeps the peer waiting that opens streams faster than it may, or that
// the store is being asked about. Nothing else of the connection is read
// meanwhile, the peer's pings neither, so it does not last: late says of the
// stream being opened what is still to be waited for.
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
			c.late = Exhausted.Errorf("more than %g calls a second of one identity: slow down and try again", limits.Opens.PerSecond)
			return
		}
	}
	if over := c.peers.looking(c.who); over != nil && !c.wait(over, limits.MaxPause) {
		c.late = errLooking
	}
}

// idleFrame keeps the peer waiting that sends more of the frames that carry
// nothing than any library does, each of which costs the transport a little, and
// gives up on one that does not cease to.
func (c *peerConn) idleFrame() {
	rate := idleFrames()
	wait, _ := c.idle.reserve(rate, c.peers.now(), c.peers.limits.MaxPause)
	switch {
	case wait > 0:
		c.wait(nil, wait)
		if c.flood++; c.flood == maxFlood {
			go c.Close() //nolint:errcheck // nobody is left to be told
		}
	case c.idle.tokens > float64(rate.Burst)/2:
		c.flood = 0
	}
}

var errLooking = Unavailable.Errorf("the store is still being asked about the caller: try again")

// wait waits for over, and reports whether it came within limit.
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

// open has the stream that is being opened counted. It is called by the tap, so
// that is the stream of the last HEADERS frame.
func (c *peerConn) open(s *intake) {
	s.conn, s.stream = c, c.opening.stream
	c.mu.Lock()
	if c.intakes == nil { // closed while it was paused: nothing would end it later
		s.end()
	} else {
		c.intakes[s.stream] = s
	}
	c.mu.Unlock()
}

// answered has the connection closed when a stream, whose handler has returned,
// does not end in time: its client reads no answers, and has them kept.
func (c *peerConn) answered(stream uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.intakes[stream]; s != nil {
		s.unread = time.AfterFunc(c.peers.limits.AnswerTimeout, func() { c.Close() }) //nolint:errcheck // nobody is left to be told
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
