package rpc

import (
	"container/list"
	"fmt"
	"net/netip"
)

// places are the established connections of a listener. Like admission it only counts: it uses
// no connections, clock or locks.
//
// A connection without a certificate costs its client one handshake and then nothing, so such
// connections are limited twice: strangers leave a quarter of the places to known sources and
// to connections with a certificate; and if there is no room, the source with most of them
// loses its oldest one to a source that has fewer.
type places struct {
	limits    Conns
	all       int
	strangers int
	anonymous map[netip.Prefix]*crowd // connections without a certificate
	taken     uint64                  // places taken so far
}

// crowd is a source's connections without a certificate, oldest first, of stranger and known
// visits. An IPv6 /64 may have both.
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

// place is the place of one connection.
type place struct {
	source        netip.Prefix
	authenticated bool
	known         bool   // when the place was taken
	end           func() // called when the place was given to another connection

	held   bool
	number uint64        // in order of taking
	of     *list.List    // the list it is in, without a certificate
	at     *list.Element // its element in of
}

func (n *place) stranger() bool { return !n.authenticated && !n.known }

// knownSourceFactor is the factor by which a known source's limits on connections without a
// certificate, and on handshakes under load, exceed those of another source.
const knownSourceFactor = 4

func newPlaces(limits Conns) *places {
	return &places{limits: limits, anonymous: make(map[netip.Prefix]*crowd)}
}

// strangersMost returns the maximum number of places for strangers.
func (p *places) strangersMost() int { return p.limits.Max - p.limits.Max/4 }

// room returns the place that must be given up for n, nil if none must be, or an error if
// there is no room.
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

// oldestOfMost returns the oldest place of the source with most connections without a
// certificate, if it has more than this source. Among several such sources it is the oldest
// place of all. With strangers, only stranger connections count.
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

// oldest returns the oldest place of a non-empty crowd.
func (c *crowd) oldest(strangers bool) *place {
	front := func(l *list.List) *place { return l.Front().Value.(*place) } //nolint:forcetypeassert // it holds only places
	switch {
	case strangers || c.known.Len() == 0:
		return front(&c.strangers)
	case c.strangers.Len() == 0 || front(&c.known).number < front(&c.strangers).number:
		return front(&c.known)
	}
	return front(&c.strangers)
}

// acquire takes a place. If it replaces another, the caller must close from.
func (p *places) acquire(n *place) (from *place, err error) {
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

// give frees a place. Idempotent.
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
