package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// Conns bound how many connections a listener holds at once. A zero field takes
// its default.
type Conns struct {
	Max int // of all sources; DefaultMaxConns
	// PerSource bounds those of one source, an IPv4 address or an IPv6 /64; a
	// quarter of Max, so that no host alone can fill the listener, and agents
	// behind one address translator still find room. Loopback is exempt.
	PerSource int
}

// DefaultMaxConns is above the 5,000 agents a shard is built for, and below the
// file descriptors that a service is commonly allowed.
const DefaultMaxConns = 16384

// RegistrationConns suit a listener that anybody may connect to for a moment.
func RegistrationConns() Conns { return Conns{PerSource: 256} }

func (c Conns) withDefaults() Conns {
	c.Max = orDefault(c.Max, DefaultMaxConns)
	c.PerSource = orDefault(c.PerSource, max(1, c.Max/4))
	return c
}

// Listen opens a TCP listener. The error begins with field, the name under which
// the user configured the address, and says what to do. A connection over a
// limit is closed as soon as it is accepted, so that nobody waits for an answer
// that can't come.
func Listen(ctx context.Context, field, addr string, limits Conns) (net.Listener, error) {
	clean, err := ParseListenAddr(addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	config := net.ListenConfig{Control: setUserTimeout}
	listener, err := config.Listen(ctx, "tcp", clean)
	switch {
	case err == nil:
		return newCappedListener(listener, limits), nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: %s is already in use: stop what listens there or choose another port: %w", field, addr, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s: %s is not an address of this machine: %w", field, addr, err)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s: no permission to listen on %s: choose a port above 1023: %w", field, addr, err)
	default:
		return nil, fmt.Errorf("%s: listen on %s: %w", field, addr, err)
	}
}

// Limit bounds the connections of a listener that is no TCP listener of Listen's.
func Limit(l net.Listener, limits Conns) net.Listener { return newCappedListener(l, limits) }

// cappedListener counts the open connections, all and by source. A source has a
// count only while it has a connection, so Max bounds the table as well.
type cappedListener struct {
	net.Listener
	limits Conns

	mu      sync.Mutex
	open    int
	sources map[netip.Prefix]int
}

func newCappedListener(l net.Listener, limits Conns) *cappedListener {
	return &cappedListener{Listener: l, limits: limits.withDefaults(), sources: make(map[netip.Prefix]int)}
}

// Accept waits for a connection that there is room for.
func (l *cappedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		source, counted := sourceOfAddr(conn.RemoteAddr())
		counted = counted && !source.Addr().IsLoopback()
		if !l.enter(source, counted) {
			conn.Close()
			continue
		}
		return &countedConn{Conn: conn, leave: sync.OnceFunc(func() { l.leave(source, counted) })}, nil
	}
}

func (l *cappedListener) enter(source netip.Prefix, counted bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.limits.Max || counted && l.sources[source] >= l.limits.PerSource {
		return false
	}
	l.open++
	if counted {
		l.sources[source]++
	}
	return true
}

func (l *cappedListener) leave(source netip.Prefix, counted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if !counted {
		return
	}
	if l.sources[source]--; l.sources[source] == 0 {
		delete(l.sources, source)
	}
}

type countedConn struct {
	net.Conn
	leave func()
}

// Close gives the connection's place back, once.
func (c *countedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
