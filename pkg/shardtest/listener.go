package shardtest

import (
	"net"
	"net/netip"
	"sync"
	"syscall"
)

type listener struct {
	host  *Host
	addr  netip.AddrPort
	queue chan *conn
	done  chan struct{}
	once  sync.Once
}

// Accept waits for a connection.
func (l *listener) Accept() (net.Conn, error) {
	if !l.host.wait(l.done) {
		return nil, net.ErrClosed
	}
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close refuses new and pending connections.
func (l *listener) Close() error {
	l.host.network.mu.Lock()
	defer l.host.network.mu.Unlock()
	l.end()
	if l.host.listeners[l.addr.Port()] == l {
		delete(l.host.listeners, l.addr.Port())
	}
	return nil
}

// end resets the connections that were not accepted. The caller holds the network's lock.
func (l *listener) end() {
	l.once.Do(func() { close(l.done) })
	for {
		select {
		case c := <-l.queue:
			c.fail(syscall.ECONNRESET)
			c.peer.failAfter(c.latency(), syscall.ECONNRESET)
			delete(l.host.conns, c)
		default:
			return
		}
	}
}

// Addr returns the address listened on.
func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.addr) }
