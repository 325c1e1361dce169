package rpc

import (
	"errors"
	"net"
	"sync/atomic"
)

// admittedConn is a connection that counts as a handshake until finish is called.
type admittedConn struct {
	net.Conn
	listener *admittedListener
	visit    visit

	// Before the handshake ends, used only by its goroutine:
	left int  // bytes that may still be read
	turn bool // holds one of Handshakes.turns

	settled atomic.Bool
	place   place // valid once settled; guarded by the listener's lock
	closed  bool  // guarded by the listener's lock
}

var errHandshakeSize = errors.New("the TLS handshake is too large")

// deliver passes the connection to Accept.
func (c *admittedConn) deliver() {
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

// expire closes the connection if it is still waiting.
func (c *admittedConn) expire() {
	if c.listener.handshakes.expire(&c.visit) {
		c.drop()
	}
}

// Read limits the size of a handshake and, between reads, holds a turn to compute.
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

// Write releases the turn first, because the peer may be slow to read.
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

// finish ends the handshake, successful or not. After an error the connection must be closed.
// It is called once, by the goroutine that did the handshake.
func (c *admittedConn) finish(authenticated bool, err error) error {
	c.endTurn()
	if err != nil {
		return err
	}
	if err := c.listener.establish(c, authenticated); err != nil {
		return err
	}
	c.listener.handshakes.established(&c.visit, authenticated)
	return nil
}

// Close closes the connection and frees its place. Idempotent.
func (c *admittedConn) Close() error {
	if c.listener.forget(c) {
		c.listener.handshakes.leave(&c.visit)
	}
	return c.Conn.Close()
}

// drop closes a connection that Accept did not return.
func (c *admittedConn) drop() { _ = c.Close() }
