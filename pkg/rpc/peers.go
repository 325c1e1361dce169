package rpc

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// identity is whom a connection counts for: the SPIFFE id of its certificate, the
// hash of a certificate that says nothing of a caller, or the source of one that
// showed none.
type identity struct {
	spiffe string
	source netip.Prefix
}

// peers count what each identity holds of one server: connections, the bytes of
// messages under way, how often it opens streams, and whether the store is being
// asked about it. An identity is remembered for as long as it holds something.
// It is safe for concurrent use.
type peers struct {
	limits Limits
	now    func() time.Time
	opens  *buckets[identity]

	mu    sync.Mutex
	known map[identity]*holding
	held  int // by all, as holding.held
}

// holding is what one identity holds.
type holding struct {
	conns []*peerConn // oldest first
	held  int         // by messages under way, in bytes as frameCost counts them
	look  chan struct{}
}

func newPeers(limits Limits, now func() time.Time) *peers {
	return &peers{limits: limits, now: now, opens: newBuckets[identity](limits.Opens, now), known: make(map[identity]*holding)}
}

func (p *peers) of(who identity) *holding {
	h, ok := p.known[who]
	if !ok {
		h = &holding{}
		p.known[who] = h
	}
	return h
}

func (p *peers) forget(who identity, h *holding) {
	if len(h.conns) == 0 && h.held == 0 && h.look == nil {
		delete(p.known, who)
	}
}

// join counts a connection. The newest wins: a peer whose network comes and goes
// leaves dead connections behind that are not yet noticed, and must not be
// locked out by them.
func (p *peers) join(c *peerConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.gone || c.who.spiffe == "" {
		return
	}
	h := p.of(c.who)
	h.conns = append(h.conns, c)
	if len(h.conns) > p.limits.MaxConns {
		oldest := h.conns[0]
		h.conns = slices.Delete(h.conns, 0, 1)
		go oldest.Close() //nolint:errcheck // it waits for its peer, and may be closed already
	}
}

func (p *peers) leave(c *peerConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.gone = true
	h := p.of(c.who)
	h.conns = slices.DeleteFunc(h.conns, func(other *peerConn) bool { return other == c })
	p.forget(c.who, h)
}

// beginLook says that the store is being asked about who, whose connections wait
// meanwhile. over closes when that has ended; end, which is nil for all but the
// first, ends it.
func (p *peers) beginLook(who identity) (over <-chan struct{}, end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.of(who)
	if h.look != nil {
		return h.look, nil
	}
	look := make(chan struct{})
	h.look = look
	return look, sync.OnceFunc(func() { p.endLook(who, look) })
}

func (p *peers) endLook(who identity, look chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.of(who)
	h.look = nil
	close(look)
	p.forget(who, h)
}

// looking returns what closes when the store has said who is welcome; nil when
// it is not being asked.
func (p *peers) looking(who identity) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h, ok := p.known[who]; ok && h.look != nil {
		return h.look
	}
	return nil
}
