package rpc

import (
	"container/list"
	"fmt"
	"net/netip"
)

// places are the established connections of a listener. Like admission it knows
// no connection, no clock and no lock: it counts.
//
// A connection without a certificate costs its client one handshake and then
// nothing, so what such connections take from others is bounded twice: those of
// strangers leave a quarter to known sources and to who shows a certificate; and
// where there is no room, a source that has more makes room for one that has
// less, with the oldest of its connections.
type places struct {
	limits    Conns
	all       int
	strangers int
	anonymous map[netip.Prefix]*crowd // those without a certificate
	taken     uint64                  // places, ever
}

// crowd are the connections of a source without a certificate, the oldest first,
// of strangers and of known visits. An IPv6 /64 may have both.
type crowd struct{ strangers, known list.List }

func (c *crowd) size(strangers bool) int {
	switch {
	case c == nil:
		return 0
	case strangers:
		return c.strangers.Len()
	}
	return c.strangers.Len() + c.known.Len()
}

// place is that of one connection.
type place struct {
	source        netip.Prefix
	authenticated bool
	known         bool   // when it was taken
	end           func() // called when another has got this place

	held   bool
	number uint64        // in the order of taking
	of     *list.List    // without a certificate: where it is
	at     *list.Element // in of
}

func (n *place) stranger() bool { return !n.authenticated && !n.known }

// knownSourceFactor is how many times as many connections without a certificate a
// known source may have as another, and handshakes when there is little room.
const knownSourceFactor = 4

func newPlaces(limits Conns) *places {
	return &places{limits: limits, anonymous: make(map[netip.Prefix]*crowd)}
}

// strangersMost is how many places strangers may have.
func (p *places) strangersMost() int { return p.limits.Max - p.limits.Max/4 }

// room returns the place that has to be given up for another to be taken, nil if
// none has to, or why none can be.
func (p *places) room(n *place) (*place, error) {
	own, share := p.anonymous[n.source].size(false), p.limits.PerSource
	if n.known {
		share *= knownSourceFactor
	}
	switch {
	case !n.authenticated && own >= share:
		return nil, fmt.Errorf("%s has %d connections without a certificate: no room for another", n.source, own)
	case n.stranger() && p.strangers >= p.strangersMost():
		if from := p.oldestOfMost(n.source, true); from != nil {
			return from, nil
		}
		return nil, fmt.Errorf("strangers have %d connections, and no source has more than %s: no room for another", p.strangers, n.source)
	case p.all >= p.limits.Max:
		if from := p.oldestOfMost(n.source, false); from != nil {
			return from, nil
		}
		return nil, fmt.Errorf("%d connections are established: no room for another", p.all)
	}
	return nil, nil
}

// oldestOfMost returns the oldest place of the source that has most connections
// without a certificate, if those are more than this source's. Of several such
// sources it is the oldest place of all. With strangers only theirs count.
func (p *places) oldestOfMost(source netip.Prefix, strangers bool) (oldest *place) {
	most := p.anonymous[source].size(strangers)
	for _, c := range p.anonymous {
		n := c.size(strangers)
		if n < most || n == most && oldest == nil {
			continue
		}
		if first := c.oldest(strangers); n > most || first.number < oldest.number {
			most, oldest = n, first
		}
	}
	return oldest
}

// oldest returns the oldest place of a crowd that has one.
func (c *crowd) oldest(strangers bool) *place {
	front := func(l *list.List) *place { return l.Front().Value.(*place) } //nolint:forcetypeassert // it holds nothing else
	switch {
	case strangers || c.known.Len() == 0:
		return front(&c.strangers)
	case c.strangers.Len() == 0 || front(&c.known).number < front(&c.strangers).number:
		return front(&c.known)
	}
	return front(&c.strangers)
}

// take takes a place, if need be that of another, which the caller has to end
// then, or says why there is none.
func (p *places) take(n *place) (from *place, err error) {
	if from, err = p.room(n); err != nil {
		return nil, err
	}
	if from != nil {
		p.give(from)
	}
	p.all++
	p.taken++
	n.held, n.number = true, p.taken
	if n.authenticated {
		return from, nil
	}
	of := p.anonymous[n.source]
	if of == nil {
		of = &crowd{}
		p.anonymous[n.source] = of
	}
	n.of = &of.known
	if !n.known {
		n.of = &of.strangers
		p.strangers++
	}
	n.at = n.of.PushBack(n)
	return from, nil
}

// give gives a place back. To give it back twice is to give it back once.
func (p *places) give(n *place) {
	if !n.held {
		return
	}
	n.held = false
	p.all--
	if n.authenticated {
		return
	}
	n.of.Remove(n.at)
	if !n.known {
		p.strangers--
	}
	if p.anonymous[n.source].size(false) == 0 {
		delete(p.anonymous, n.source)
	}
}
