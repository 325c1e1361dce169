package rpc

import (
	"net"
	"net/netip"
	"time"
)

// RegistrationRate is the limit on calls without a client certificate.
func RegistrationRate() Rate { return Rate{PerSecond: 50, Burst: 500} }

// limiter limits calls per source: an IPv4 address, or an IPv6 /64, which usually belongs to
// one host. Safe for concurrent use.
type limiter struct{ sources *buckets[netip.Prefix] }

func newLimiter(rate Rate, now func() time.Time) *limiter {
	return &limiter{sources: newBuckets[netip.Prefix](rate, now)}
}

// allow takes a token of the caller's source. Loopback is exempt: on the local machine all
// agents may share one address.
func (l *limiter) allow(addr net.Addr) error {
	source, ok := sourceOfAddr(addr)
	rate := l.sources.rate
	if !rate.limits() || (ok && source.Addr().IsLoopback()) {
		return nil
	}
	if _, ok := l.sources.take(source); !ok {
		return Exhausted.Errorf("more than %g calls a second from %s: slow down and try again", rate.PerSecond, source)
	}
	return nil
}

// sourceOfAddr returns the source that a connection counts for. If the transport has no
// address, ok is false and all such connections share the invalid prefix.
func sourceOfAddr(addr net.Addr) (netip.Prefix, bool) {
	ip := addressOf(addr)
	bits := ip.BitLen()
	if ip.Is6() && !ip.IsLoopback() {
		bits = 64
	}
	source, _ := ip.Prefix(bits)
	return source, source.IsValid()
}
