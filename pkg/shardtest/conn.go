package shardtest

import (
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// conn is one end of a connection. Bytes from the other end wait in its queue until they
// are due and read. Writes never block: the protocols above limit unread data.
type conn struct {
	network       *Network
	host          *Host
	link          *link
	local, remote netip.AddrPort
	way           uint64 // decides the latencies of this end's writes
	peer          *conn
	wake          chan struct{} // capacity 1: wakes the reader
	done          chan struct{} // closed when this end was closed or failed

	mu       sync.Mutex
	sent     time.Time // when the last write arrives
	queue    []chunk
	err      error // this end broke
	closed   bool
	deadline time.Time // for reading
	late     time.Time // for writing
}

// chunk is the data of one write. Without bytes it means EOF.
type chunk struct {
	bytes []byte
	at    time.Time
}

// Read waits for bytes that have arrived.
func (c *conn) Read(b []byte) (int, error) {
	for {
		if !c.host.wait(c.done) {
			return 0, c.broken()
		}
		cut, changed := c.network.isCut(c.link)
		n, due, err := c.take(b, cut)
		if n > 0 || err != nil {
			return n, err
		}
		c.await(due, changed)
	}
}

// await waits for a wake-up, at most until due unless that is zero.
func (c *conn) await(due time.Time, changed <-chan struct{}) {
	var timer <-chan time.Time
	if !due.IsZero() {
		t := time.NewTimer(time.Until(due))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-c.wake:
	case <-changed:
	case <-timer:
	}
}

// take moves due bytes into b, or returns when the next ones are due.
func (c *conn) take(b []byte, cut bool) (n int, due time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	switch {
	case c.closed:
		return 0, due, net.ErrClosed
	case c.err != nil:
		return 0, due, c.err
	case !c.deadline.IsZero() && !c.deadline.After(now):
		return 0, due, os.ErrDeadlineExceeded
	}
	due = c.deadline
	if len(c.queue) == 0 || cut {
		return 0, due, nil
	}
	first := &c.queue[0]
	switch {
	case first.at.After(now):
		if due.IsZero() || first.at.Before(due) {
			due = first.at
		}
		return 0, due, nil
	case len(first.bytes) == 0:
		return 0, due, io.EOF
	}
	n = copy(b, first.bytes)
	if first.bytes = first.bytes[n:]; len(first.bytes) == 0 {
		c.queue = c.queue[1:]
	}
	return n, due, nil
}

// Write sends b.
func (c *conn) Write(b []byte) (int, error) {
	if !c.host.wait(c.done) {
		return 0, c.broken()
	}
	if len(b) == 0 {
		return 0, nil
	}
	c.mu.Lock()
	if err := c.unwritable(); err != nil {
		c.mu.Unlock()
		return 0, err
	}
	sent := chunk{bytes: append([]byte(nil), b...), at: c.arrival()}
	c.mu.Unlock()
	c.peer.receive(sent)
	return len(b), nil
}

func (c *conn) unwritable() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.err != nil:
		return c.err
	case !c.late.IsZero() && !c.late.After(time.Now()):
		return os.ErrDeadlineExceeded
	default:
		return nil
	}
}

// arrival returns when a write of now arrives, never before earlier writes.
func (c *conn) arrival() time.Time {
	at := time.Now().Add(c.latency())
	if at.Before(c.sent) {
		at = c.sent
	}
	c.sent = at
	return at
}

func (c *conn) latency() time.Duration { return c.network.latency(c.way) }

func (c *conn) receive(what chunk) {
	c.mu.Lock()
	c.queue = append(c.queue, what)
	c.mu.Unlock()
	c.look()
}

func (c *conn) look() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// fail breaks this end with an error.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(err)
}

func (c *conn) failLocked(err error) {
	if c.err == nil && !c.closed {
		c.err = err
		close(c.done)
	}
	c.look()
}

// failAfter breaks this end once d has passed.
func (c *conn) failAfter(d time.Duration, err error) {
	time.AfterFunc(d, func() { c.fail(err) })
}

func (c *conn) broken() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.err == nil {
		return net.ErrClosed
	}
	return c.err
}

// Close ends the connection; the other end reads the remaining data, then EOF.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	alive := c.err == nil
	c.failLocked(net.ErrClosed)
	c.closed = true
	end := chunk{at: c.arrival()}
	c.mu.Unlock()
	if alive {
		c.peer.receive(end)
	}
	c.network.forget(c)
	return nil
}

// LocalAddr returns this end's address.
func (c *conn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.local) }

// RemoteAddr returns the other end's address.
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline, c.late = t, t
	c.mu.Unlock()
	c.look()
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
	c.look()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	c.late = t
	c.mu.Unlock()
	return nil
}

var _ net.Conn = (*conn)(nil)
