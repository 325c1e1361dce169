package rpc

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// admittedListener accepts every connection at once and returns those whose handshakes may
// start. The others wait, without a goroutine, or are closed.
type admittedListener struct {
	accepting[*admittedConn] // ready has room for the maximum number of handshakes in progress
	handshakes               *Handshakes

	mu          sync.Mutex
	waiting     map[*admittedConn]struct{}
	established *places
}

func newAdmittedListener(l net.Listener, limits Conns) *admittedListener {
	a := &admittedListener{
		handshakes: limits.Handshakes,
		waiting:    make(map[*admittedConn]struct{}), established: newPlaces(limits.withDefaults()),
	}
	a.accepting = accepting[*admittedConn]{
		Listener: l, take: a.judge,
		ready: make(chan *admittedConn, limits.Handshakes.limits.Total), errs: make(chan error), done: make(chan struct{}),
	}
	return a
}

// judge admits a connection, queues it, or closes it.
func (l *admittedListener) judge(conn net.Conn) {
	h := l.handshakes
	c := &admittedConn{Conn: conn, listener: l, left: h.limits.Bytes}
	c.visit.source, _ = sourceOfAddr(conn.RemoteAddr())
	c.visit.instance = h.known != nil && h.known(addressOf(conn.RemoteAddr()))
	c.visit.begin = c.deliver
	if !l.expect(c) {
		c.drop()
		return
	}
	l.arrive(c)
}

// expect registers a connection, before the end of another can admit it, and reports whether
// there is room for it once established.
func (l *admittedListener) expect(c *admittedConn) bool {
	known := l.handshakes.isKnown(&c.visit)
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.established.room(&place{source: c.visit.source, known: known})
	l.waiting[c] = struct{}{}
	return err == nil
}

// arrive applies the decision about a connection.
func (l *admittedListener) arrive(c *admittedConn) {
	h := l.handshakes
	said := h.arrive(&c.visit)
	if l.hasClosed(c) { // closed before it arrived, so closing it freed nothing
		h.leave(&c.visit)
		return
	}
	switch said {
	case admitted:
		c.deliver()
	case refused:
		c.drop()
	case waits:
		time.AfterFunc(h.limits.Wait, c.expire)
		if l.closed() { // Close may have missed it
			c.drop()
		}
	}
}

// hasClosed reports whether a connection is being closed.
func (l *admittedListener) hasClosed(c *admittedConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.closed
}

func (l *admittedListener) closed() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// establish counts a connection whose handshake succeeded, or returns why it is refused.
func (l *admittedListener) establish(c *admittedConn, authenticated bool) error {
	known := l.handshakes.isKnown(&c.visit)
	from, err := l.acquirePlace(c, place{source: c.visit.source, authenticated: authenticated, known: known, end: c.drop})
	if from != nil {
		from.end()
	}
	return err
}

func (l *admittedListener) acquirePlace(c *admittedConn, p place) (from *place, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	c.place = p
	if from, err = l.established.acquire(&c.place); err != nil {
		return nil, err
	}
	c.settled.Store(true)
	return from, nil
}

// forget frees a connection's place, and reports whether it had one.
func (l *admittedListener) forget(c *admittedConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.closed {
		return false
	}
	c.closed = true
	delete(l.waiting, c)
	l.established.give(&c.place)
	return true
}

// Close closes the listener and the connections that Accept did not return.
func (l *admittedListener) Close() error {
	l.end.Do(func() { close(l.done) })
	err := l.Listener.Close()
	l.mu.Lock()
	left := make([]*admittedConn, 0, len(l.waiting))
	for c := range l.waiting {
		left = append(left, c)
	}
	l.mu.Unlock()
	for _, c := range left {
		c.drop()
	}
	for {
		select {
		case c := <-l.ready:
			c.drop()
		default:
			return err
		}
	}
}

func addressOf(addr net.Addr) netip.Addr {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}
