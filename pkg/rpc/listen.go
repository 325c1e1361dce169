package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Conns bound how many connections a listener holds at once. A zero field takes
// its default. A source is an IPv4 address or an IPv6 /64.
type Conns struct {
	Max int // of all sources; DefaultMaxConns
	// PerSource bounds those of one source; a quarter of Max, so that no host alone
	// can fill the listener. With Handshakes it counts only established connections
	// without a certificate, and known sources may have four times as many: agents
	// behind one address translator, or of one subnet, are not to be turned away.
	// Those without a certificate, and not of a known source, have three quarters of
	// Max at most. Where there is no room, a newcomer has the place of the oldest
	// connection without a certificate of the source that has most of them, if its
	// own source has fewer.
	PerSource int
	// OldestGoes makes room for a newcomer by closing the oldest connection: of the
	// newcomer's source if that has its share, or else of the source that has most.
	// It suits requests that are answered at once. Not with Handshakes.
	OldestGoes bool
	// Handshakes bound the TLS handshakes on the listener, apart from the
	// connections that Max counts, which are then those whose handshake succeeded.
	// nil is for listeners without TLS.
	Handshakes *Handshakes
}

// DefaultMaxConns is above the 5,000 agents a shard is built for, and below the
// file descriptors that a service is commonly allowed.
const DefaultMaxConns = 16384

// RegistrationConns suit a listener that anybody may connect to for a moment.
func RegistrationConns() Conns { return Conns{Max: 2048, PerSource: 256} }

// PeerConns suit the listener for the shard's other servers.
func PeerConns() Conns { return Conns{Max: 256} }

func (c Conns) withDefaults() Conns {
	c.Max = cmp.Or(c.Max, DefaultMaxConns)
	c.PerSource = cmp.Or(c.PerSource, max(1, c.Max/4))
	return c
}

// Listen opens a TCP listener. The error begins with field, the name under which
// the user configured the address, and says what to do. A connection over a
// limit is closed as soon as it is accepted, so that nobody waits for an answer
// that can't come; one whose handshake can't begin yet, a little later.
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

// Limit bounds the connections of a listener that is no TCP listener of Listen's.
func Limit(l net.Listener, limits Conns) net.Listener {
	if limits.Handshakes != nil {
		return newAdmittedListener(l, limits)
	}
	return newCappedListener(l, limits)
}
