package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Conns limits the connections of a listener. Zero fields have defaults. A source is an IPv4
// address or an IPv6 /64.
type Conns struct {
	Max int // in total; default DefaultMaxConns
	// PerSource limits the connections of one source; default a quarter of Max, so that no
	// single host can fill the listener. With Handshakes it counts only established
	// connections without a certificate, and known sources may have four times as many, so
	// that agents behind one NAT or in one subnet are not refused. Connections without a
	// certificate from unknown sources get at most three quarters of Max. If there is no room,
	// a new connection replaces the oldest connection without a certificate of the source that
	// has most of them, if its own source has fewer.
	PerSource int
	// OldestGoes makes room for a new connection by closing the oldest one: of the same source
	// if it is at its limit, or else of the source that has most. It suits requests that are
	// answered at once. Not with Handshakes.
	OldestGoes bool
	// Handshakes limits the TLS handshakes on the listener; Max then counts only connections
	// whose handshake succeeded. nil is for listeners without TLS.
	Handshakes *Handshakes
}

// DefaultMaxConns is above the 5,000 agents that a shard is built for, and below the usual
// file descriptor limit of a service.
const DefaultMaxConns = 16384

// RegistrationConns suit a listener that is open to all, with short-lived connections.
func RegistrationConns() Conns { return Conns{Max: 2048, PerSource: 256} }

// PeerConns suit the listener for the shard's other servers.
func PeerConns() Conns { return Conns{Max: 256} }

func (c Conns) withDefaults() Conns {
	c.Max = cmp.Or(c.Max, DefaultMaxConns)
	c.PerSource = cmp.Or(c.PerSource, max(1, c.Max/4))
	return c
}

// Listen opens a TCP listener. The error starts with field, the user's name for the address,
// and says what to do. A connection over a limit is closed as soon as it is accepted, so that
// no client waits in vain; one whose handshake can't start yet, a little later.
func Listen(ctx context.Context, field, addr string, limits Conns) (net.Listener, error) {
	clean, err := ParseListenAddr(addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	config := net.ListenConfig{Control: setUserTimeout}
	listener, err := config.Listen(ctx, "tcp", clean)
	switch {
	case err == nil:
		return Limit(listener, limits), nil
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

// Limit limits the connections of a listener that was not opened by Listen.
func Limit(l net.Listener, limits Conns) net.Listener {
	if limits.Handshakes != nil {
		return newAdmittedListener(l, limits)
	}
	return newCappedListener(l, limits)
}
