package rpc

import (
	"cmp"
	"net/netip"
	"runtime"
	"sync"
	"time"
)

// HandshakeLimits bound what strangers can make a process do before it knows who
// they are. A zero field takes the value of DefaultHandshakeLimits.
type HandshakeLimits struct {
	Total     int // handshakes in progress
	Strangers int // those of sources that are not known; the rest is for known ones
	PerSource int // those of one source
	// PerKnownSource bounds those of one known source while less than three
	// quarters of Total are in progress; from there on four times PerSource, if that is
	// less, so that two such sources don't fill the budget.
	PerKnownSource int
	// Waiting bounds the connections that wait for their handshake to begin, of
	// which three quarters at most are strangers' and a quarter one source's. They
	// cost a file descriptor each.
	Waiting int
	Wait    time.Duration // how long such a connection waits before it is closed
	Bytes   int           // read from a connection before its handshake's end
}

// DefaultHandshakeLimits let a thousand agents behind one address reconnect
// within seconds: the first of them to be authenticated makes the source known.
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

// Handshakes are the TLS handshakes of a process, over all its listeners: a
// budget of their own, which established connections don't share. Make one with
// NewHandshakes and name it in the Conns of each listener. It is safe for
// concurrent use.
//
// A source is an IPv4 address or an IPv6 /64. It is known while one of its
// connections is authenticated, that is, showed a certificate of this cluster
// and proved to own it. A connection is a known one's, too, whose exact address
// is an instance's.
type Handshakes struct {
	limits HandshakeLimits
	known  func(netip.Addr) bool
	// turns are those who may compute at a time: a few for each processor, so that
	// what an established connection has to do waits for milliseconds, however many
	// handshakes are in progress.
	turns chan struct{}

	mu        sync.Mutex
	admission *admission
}

const turnsPerProcessor = 8

// NewHandshakes makes a budget. known reports whether an address is one of an
// instance; it is asked for every connection, so it must answer from memory.
func NewHandshakes(limits HandshakeLimits, known func(netip.Addr) bool) *Handshakes {
	limits = limits.withDefaults()
	return &Handshakes{
		limits: limits, known: known, admission: newAdmission(limits),
		turns: make(chan struct{}, turnsPerProcessor*runtime.GOMAXPROCS(0)),
	}
}

// arrive says what becomes of a connection.
func (h *Handshakes) arrive(v *visit) verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.admission.arrive(v)
}

// isKnown reports whether a visit counts as a known source's.
func (h *Handshakes) isKnown(v *visit) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.admission.isKnown(v)
}

// settle notes that a handshake succeeded.
func (h *Handshakes) settle(v *visit, authenticated bool) {
	h.free(func() { h.admission.settle(v, authenticated) })
}

// leave notes that a connection is closed.
func (h *Handshakes) leave(v *visit) { h.free(func() { h.admission.leave(v) }) }

// expire takes a connection out that still waits, and reports whether it did.
func (h *Handshakes) expire(v *visit) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v.state != waiting {
		return false
	}
	h.admission.leave(v)
	return true
}

// free does what may make room, and lets those in whose turn it is then.
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
