package rpc

import (
	"errors"
	"net"
	"sync/atomic"
)

// admittedConn is a connection that counts as a handshake until settle is called.
type admittedConn struct {
	net.Conn
	listener *admittedListener
	visit    visit

	// Until settled, by the one goroutine that does the handshake:
	left int  // bytes that may yet be read
	turn bool // one of the turns to compute is held

	settled atomic.Bool
	place   place // once settled; under the listener's lock
	closed  bool  // under the listener's lock
}

var errHandshakeSize = errors.New("the TLS handshake is larger than any client of ours makes it")

// begin hands the connection to Accept.
func (c *admittedConn) begin() {
	c.listener.mu.Lock()
	delete(c.listener.waiting, c)
	c.listener.mu.Unlock()
	select {
	case c.listener.ready <- c:
	default:
		c.drop()
		return
	}
	if c.listener.closed() {
		c.drop()
	}
}

// expire closes the connection if it still waits.
func (c *admittedConn) expire() {
	if c.listener.handshakes.expire(&c.visit) {
		c.drop()
	}
}

// Read bounds what a handshake may be made of, and, between one read and the
// next, takes one of the turns to compute.
func (c *admittedConn) Read(p []byte) (int, error) {
	if c.settled.Load() {
		return c.Conn.Read(p)
	}
	c.endTurn()
	if c.left == 0 {
		return 0, errHandshakeSize
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	if err == nil {
		c.listener.handshakes.turns <- struct{}{}
		c.turn = true
	}
	return n, err
}

// Write gives the turn back first: the other side may be slow to read.
func (c *admittedConn) Write(p []byte) (int, error) {
	if !c.settled.Load() {
		c.endTurn()
	}
	return c.Conn.Write(p)
}

func (c *admittedConn) endTurn() {
	if c.turn {
		c.turn = false
		<-c.listener.handshakes.turns
	}
}

// finish ends the handshake, which the caller has done or given up. After an
// error the connection is to be closed. It is called once, by the goroutine that
// did the handshake.
func (c *admittedConn) finish(authenticated bool, err error) error {
	c.endTurn()
	if err != nil {
		return err
	}
	if err := c.listener.settle(c, authenticated); err != nil {
		return err
	}
	c.listener.handshakes.settle(&c.visit, authenticated)
	return nil
}

// Close gives the connection's place back, once.
func (c *admittedConn) Close() error {
	if c.listener.forget(c) {
		c.listener.handshakes.leave(&c.visit)
	}
	return c.Conn.Close()
}

// drop closes a connection that Accept did not return.
func (c *admittedConn) drop() { _ = c.Close() }
