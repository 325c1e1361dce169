package rpc

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// identity is the key that a connection is counted under: the SPIFFE ID of its certificate,
// the hash of a certificate that identifies no caller, or the source address if there is none.
type identity struct {
	spiffe string
	source netip.Prefix
}

// peers counts what each identity holds of one server: connections, message bytes, stream
// rate, and whether it is being looked up in the store. An identity is kept while it holds
// something. Safe for concurrent use.
type peers struct {
	limits Limits
	now    func() time.Time
	opens  *buckets[identity]

	mu    sync.Mutex
	known map[identity]*holding
	held  int // in total, as holding.held
}

// holding is what one identity holds.
type holding struct {
	conns []*peerConn // oldest first
	held  int         // by messages in progress, in bytes as counted by frameCost
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

// join counts a connection. If the identity has too many, the oldest is closed: a peer on an
// unstable network leaves dead connections behind that are not yet detected, and must not be
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
		go oldest.Close() //nolint:errcheck // it waits for the peer, and the connection may be closed already
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

// startCheck records that an identity is being looked up in the store, which pauses its
// connections. over is closed when that ends; end ends it, and is nil for all but the first
// caller.
func (p *peers) startCheck(who identity) (over <-chan struct{}, end func()) {
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

// checking returns the channel that is closed when the lookup of an identity ends; nil if
// there is none.
func (p *peers) checking(who identity) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h, ok := p.known[who]; ok && h.look != nil {
		return h.look
	}
	return nil
}
