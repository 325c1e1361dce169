package rpc

import (
	"cmp"
	"net/netip"
	"runtime"
	"sync"
	"time"
)

// HandshakeLimits bound the cost of unauthenticated connections to a process. Zero fields are
// set from DefaultHandshakeLimits.
type HandshakeLimits struct {
	Total     int // handshakes in progress
	Strangers int // from unknown sources; the rest is reserved for known ones
	PerSource int // from one source
	// PerKnownSource limits one known source while less than three quarters of Total are in
	// progress. Above that the limit is four times PerSource, if lower, so that two such
	// sources can't use up Total.
	PerKnownSource int
	// Waiting limits the connections queued for a handshake, at most three quarters of them
	// from strangers and a quarter from one source. Each costs a file descriptor.
	Waiting int
	Wait    time.Duration // a connection that has waited this long is closed
	Bytes   int           // read from a connection before its handshake ends
}

// DefaultHandshakeLimits let a thousand agents behind one address reconnect within seconds:
// the first one that authenticates makes the source known.
func DefaultHandshakeLimits() HandshakeLimits {
	return HandshakeLimits{
		Total: 1024, Strangers: 512, PerSource: 32, PerKnownSource: 512,
		Waiting: 4096, Wait: 5 * time.Second, Bytes: 16 << 10,
	}
}

func (l HandshakeLimits) withDefaults() HandshakeLimits {
	d := DefaultHandshakeLimits()
	l.Total = cmp.Or(l.Total, d.Total)
	l.Strangers = cmp.Or(l.Strangers, d.Strangers)
	l.PerSource = cmp.Or(l.PerSource, d.PerSource)
	l.PerKnownSource = cmp.Or(l.PerKnownSource, d.PerKnownSource)
	l.Waiting = cmp.Or(l.Waiting, d.Waiting)
	l.Wait = cmp.Or(l.Wait, d.Wait)
	l.Bytes = cmp.Or(l.Bytes, d.Bytes)
	return l
}

// Handshakes limits the TLS handshakes of a process across all its listeners, separately from
// established connections. Create it with NewHandshakes and set it in the Conns of each
// listener. Safe for concurrent use.
//
// A source is an IPv4 address or an IPv6 /64. It is known while one of its connections is
// authenticated, meaning that the peer proved ownership of a certificate of this cluster. A
// connection from an instance's exact address also counts as known.
type Handshakes struct {
	limits HandshakeLimits
	known  func(netip.Addr) bool
	// turns limits concurrent handshake computation to a few per processor, so that
	// established connections wait for milliseconds at most, however many handshakes are in
	// progress.
	turns chan struct{}

	mu        sync.Mutex
	admission *admission
}

const turnsPerProcessor = 8

// NewHandshakes returns a Handshakes. known reports whether an address is an instance's; it is
// called for every connection, so it must answer from memory.
func NewHandshakes(limits HandshakeLimits, known func(netip.Addr) bool) *Handshakes {
	limits = limits.withDefaults()
	return &Handshakes{
		limits: limits, known: known, admission: newAdmission(limits),
		turns: make(chan struct{}, turnsPerProcessor*runtime.GOMAXPROCS(0)),
	}
}

// arrive decides about a new connection.
func (h *Handshakes) arrive(v *visit) verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.admission.arrive(v)
}

// isKnown reports whether a visit counts as from a known source.
func (h *Handshakes) isKnown(v *visit) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.admission.isKnown(v)
}

// established records that a handshake succeeded.
func (h *Handshakes) established(v *visit, authenticated bool) {
	h.free(func() { h.admission.establish(v, authenticated) })
}

// leave records that a connection was closed.
func (h *Handshakes) leave(v *visit) { h.free(func() { h.admission.leave(v) }) }

// expire removes a connection that is still waiting, and reports whether it was.
func (h *Handshakes) expire(v *visit) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v.state != waiting {
		return false
	}
	h.admission.leave(v)
	return true
}

// free applies a change that may make room, and starts the handshakes that now have room.
func (h *Handshakes) free(change func()) {
	var begin []*visit
	h.mu.Lock()
	change()
	for v := h.admission.next(); v != nil; v = h.admission.next() {
		begin = append(begin, v)
	}
	h.mu.Unlock()
	for _, v := range begin {
		v.begin()
	}
}
