package shardtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// Host is one machine on the network.
type Host struct {
	network *Network
	addr    netip.Addr

	// Guarded by the network's lock.
	up        bool
	listeners map[uint16]*listener
	given     uint16 // the last port assigned for port 0
	conns     map[*conn]struct{}
	pause     chan struct{} // closed on Resume; nil: not suspended
}

// Down closes everything that a host has open. The peers get a reset (the process died), or
// time out (the machine lost power).
func (h *Host) Down(told bool) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	h.up = false
	h.goOn()
	for _, l := range h.listeners {
		l.end()
	}
	clear(h.listeners)
	for c := range h.conns {
		c.fail(syscall.ECONNRESET)
		if told {
			c.peer.failAfter(c.latency(), syscall.ECONNRESET)
		} else {
			c.peer.failAfter(patienceOfTCP, syscall.ETIMEDOUT)
		}
	}
	clear(h.conns)
}

// Up allows a host to listen and dial again.
func (h *Host) Up() {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	h.up = true
}

// Suspend blocks every read, write, dial and accept of the host, like a stopped process.
func (h *Host) Suspend() {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	if h.pause == nil {
		h.pause = make(chan struct{})
	}
}

// Resume ends Suspend.
func (h *Host) Resume() {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	h.goOn()
}

func (h *Host) goOn() {
	if h.pause != nil {
		close(h.pause)
		h.pause = nil
	}
}

// paused returns a channel that is closed on Resume; nil if the host is not suspended.
func (h *Host) paused() <-chan struct{} {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	return h.pause
}

// wait returns when the host is not suspended; false if done was closed first.
func (h *Host) wait(done <-chan struct{}) bool {
	for p := h.paused(); p != nil; p = h.paused() {
		select {
		case <-p:
		case <-done:
			return false
		}
	}
	return true
}

// Listen listens on the port of addr; 0 means any free port.
func (h *Host) Listen(_ context.Context, addr string) (net.Listener, error) {
	_, port, err := split(addr)
	if err != nil {
		return nil, err
	}
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	if port == 0 {
		port = h.freePort()
	}
	switch {
	case !h.up:
		return nil, opError("listen", addr, syscall.ENETDOWN)
	case h.listeners[port] != nil:
		return nil, opError("listen", addr, syscall.EADDRINUSE)
	}
	l := &listener{host: h, addr: netip.AddrPortFrom(h.addr, port), queue: make(chan *conn, 128), done: make(chan struct{})}
	h.listeners[port] = l
	return l, nil
}

// freePort returns a port without a listener, a new one each time, so that a client of an old
// port does not reach another process. The caller holds the network's lock.
func (h *Host) freePort() uint16 {
	for h.given++; h.listeners[h.given] != nil; h.given++ {
	}
	return h.given
}

// Dial connects to addr, host:port. It fails with an errno as TCP does, or waits for ctx
// without an answer.
func (h *Host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	name, port, err := split(addr)
	if err != nil {
		return nil, err
	}
	to, err := netip.ParseAddr(name)
	if err != nil {
		return nil, fmt.Errorf("dial %s: no such host", addr)
	}
	timeout := time.NewTimer(patienceOfTCP)
	defer timeout.Stop()
	for {
		if !h.wait(ctx.Done()) {
			return nil, ctx.Err()
		}
		c, again, err := h.connect(netip.AddrPortFrom(to, port))
		if err != nil {
			return nil, opError("dial", addr, err)
		}
		if c != nil {
			if retry.Wait(ctx, 2*h.network.min) != nil {
				_ = c.Close() // not returned to the caller
				return nil, ctx.Err()
			}
			return c, nil
		}
		select {
		case <-again:
		case <-time.After(time.Second): // SYN retransmission: the machine may be up by then
		case <-timeout.C:
			return nil, opError("dial", addr, syscall.ETIMEDOUT)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// connect makes a connection, or returns what to wait for before the next attempt.
func (h *Host) connect(to netip.AddrPort) (c *conn, again <-chan struct{}, err error) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if !h.up {
		return nil, nil, syscall.ENETUNREACH
	}
	other := n.host(to.Addr())
	l := n.link(h.addr.String(), to.Addr().String())
	if l.cut || !other.up {
		return nil, l.changed, nil
	}
	listener := other.listeners[to.Port()]
	if listener == nil {
		return nil, nil, syscall.ECONNREFUSED
	}
	n.opens++
	here, there := n.pair(h, other, l, to, n.opens)
	select {
	case listener.queue <- there:
	default:
		return nil, nil, syscall.ECONNREFUSED // its backlog is full
	}
	h.conns[here], other.conns[there] = struct{}{}, struct{}{}
	return here, nil, nil
}

func split(addr string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	var n uint16
	if _, err := fmt.Sscanf(text, "%d", &n); err != nil {
		return "", 0, fmt.Errorf("%.80q has no port that a simulated host can have: want 0 to 65535", addr)
	}
	return host, n, nil
}

func opError(op, addr string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = os.NewSyscallError(op, err)
	}
	return fmt.Errorf("%s %s: %w", op, addr, err)
}
