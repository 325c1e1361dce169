package rpc

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc/peer"
)

// Rate is how often one source address may call: a token bucket that holds Burst
// and gains PerSecond. The zero value is no limit.
type Rate struct {
	PerSecond float64
	Burst     int
}

// RegistrationRate is the limit on calls without a client certificate.
func RegistrationRate() Rate { return Rate{PerSecond: 50, Burst: 500} }

// maxSources bounds the limiter's memory: about a megabyte.
const maxSources = 1 << 13

// sweepInterval keeps a flood of newcomers from costing a walk over the table
// each.
const sweepInterval = time.Second

// limiter counts per source: an IPv4 address, or the /64 that one IPv6 host
// commonly owns whole. A bucket that is full again is no different from none,
// so those are what goes when there is no room. When there is none even then,
// newcomers share one bucket: an attacker with many addresses then slows other
// newcomers down, but can't make the table grow. It is safe for concurrent use.
type limiter struct {
	rate Rate
	now  func() time.Time

	mu       sync.Mutex
	sources  map[netip.Prefix]*bucket
	overflow bucket
	swept    time.Time
}

type bucket struct {
	tokens float64
	at     time.Time
}

func newLimiter(rate Rate, now func() time.Time) *limiter {
	full := bucket{tokens: float64(rate.Burst), at: now()}
	return &limiter{rate: rate, now: now, sources: make(map[netip.Prefix]*bucket), overflow: full}
}

// allow takes a token of the caller's source. Loopback is exempt: that is the
// machine itself, where all agents may share one address.
func (l *limiter) allow(ctx context.Context) error {
	source, ok := sourceOf(ctx)
	if l.rate.PerSecond <= 0 || (ok && source.Addr().IsLoopback()) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.bucketFor(source).take(l.rate, l.now()) {
		return Exhausted.Errorf("more than %g calls a second from %s: slow down and try again", l.rate.PerSecond, source)
	}
	return nil
}

func (l *limiter) bucketFor(source netip.Prefix) *bucket {
	if b, ok := l.sources[source]; ok {
		return b
	}
	if now := l.now(); len(l.sources) >= maxSources && now.Sub(l.swept) >= sweepInterval {
		l.swept = now
		l.forgetFull(now)
	}
	if len(l.sources) >= maxSources {
		return &l.overflow
	}
	b := &bucket{tokens: float64(l.rate.Burst), at: l.now()}
	l.sources[source] = b
	return b
}

func (l *limiter) forgetFull(now time.Time) {
	for source, b := range l.sources {
		if b.fill(l.rate, now); b.tokens >= float64(l.rate.Burst) {
			delete(l.sources, source)
		}
	}
}

func (b *bucket) fill(rate Rate, now time.Time) {
	b.tokens = min(float64(rate.Burst), b.tokens+rate.PerSecond*now.Sub(b.at).Seconds())
	b.at = now
}

func (b *bucket) take(rate Rate, now time.Time) bool {
	b.fill(rate, now)
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// sourceOf is whom a call counts for; not ok, and the invalid prefix that all
// such callers share, when the transport names no address.
func sourceOf(ctx context.Context) (netip.Prefix, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return netip.Prefix{}, false
	}
	return sourceOfAddr(p.Addr)
}

func sourceOfAddr(addr net.Addr) (netip.Prefix, bool) {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}, false
	}
	ip := tcp.AddrPort().Addr().Unmap()
	bits := ip.BitLen()
	if ip.Is6() && !ip.IsLoopback() {
		bits = 64
	}
	source, err := ip.WithZone("").Prefix(bits)
	return source, err == nil
}
