package rpc

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

func (p *places) takeFrom(source string, known bool) (n, from *place, err error) {
	n = &place{source: prefixOf(source), known: known}
	from, err = p.acquire(n)
	return n, from, err
}

func fill(p *places, n int, source string, known bool) (in int) {
	for range n {
		if _, _, err := p.takeFrom(source, known); err == nil {
			in++
		}
	}
	return in
}

// TestRegistrationPlaces: eight addresses at their limits leave a quarter to known sources,
// and no address without a place.
func TestRegistrationPlaces(t *testing.T) {
	p := newPlaces(RegistrationConns())
	for n := range 8 {
		fill(p, 300, netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}).String(), false)
	}
	if p.strangers != 1536 || p.all != 1536 {
		t.Fatalf("strangers have %d of %d places, want 1536", p.strangers, p.all)
	}
	if n := fill(p, 512, "10.0.0.1", true); n != 512 || p.strangers != 1536 {
		t.Errorf("%d known connections have a place beside %d of strangers, want 512 beside 1536", n, p.strangers)
	}
	if n := fill(p, 100, "198.51.100.1", false); n != 100 {
		t.Errorf("%d of 100 of another address have a place", n)
	}
	if _, from, err := p.takeFrom("10.0.0.2", true); err != nil || from == nil || from.source != prefixOf("10.0.0.1") {
		t.Errorf("another known source has the place of %+v (%v), want that of the known source that has most", from, err)
	}
}

// TestPlaceOfAnother: a new connection replaces the oldest one of the source with most
// connections; of two such sources, the older connection. A source with as many connections
// itself replaces none.
func TestPlaceOfAnother(t *testing.T) {
	p := newPlaces(Conns{Max: 8, PerSource: 4})
	var first []*place
	for _, source := range []string{"192.0.2.1", "192.0.2.2"} {
		n, _, _ := p.takeFrom(source, false)
		first = append(first, n)
	}
	fill(p, 2, "192.0.2.2", false)
	fill(p, 2, "192.0.2.1", false) // six, the maximum for strangers
	if _, from, err := p.takeFrom("192.0.2.1", false); err == nil || from != nil {
		t.Errorf("one of the two sources that have most has the place of %+v", from)
	}
	for n, want := range []*place{first[0], first[1]} {
		_, from, err := p.takeFrom("192.0.2.3", false)
		if err != nil || from != want {
			t.Errorf("newcomer %d has the place of %+v (%v), want that of %+v", n, from, err, want)
		}
	}
	certified := Conns{Max: 1, PerSource: 1}
	p = newPlaces(certified)
	if _, err := p.acquire(&place{source: prefixOf("192.0.2.1"), authenticated: true}); err != nil {
		t.Fatal(err)
	}
	if _, from, err := p.takeFrom("192.0.2.2", true); err == nil {
		t.Errorf("a connection without a certificate has the place of %+v, which showed one", from)
	}
}

// TestPlacesCounts takes and frees places in random order: no limit is exceeded, only
// connections without a certificate are replaced, a stranger without a place gets one as long
// as another has one, and at the end nothing is remembered.
func TestPlacesCounts(t *testing.T) {
	limits := Conns{Max: 13, PerSource: 2}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		p := newPlaces(limits)
		var all []*place
		for range 300 {
			if random.IntN(3) == 0 && len(all) > 0 {
				n := all[random.IntN(len(all))]
				p.give(n)
				p.give(n)
				continue
			}
			n := &place{
				source:        prefixOf(netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(9))}).String()),
				authenticated: random.IntN(6) == 0, known: random.IntN(3) == 0,
			}
			entitled := n.stranger() && p.anonymous[n.source] == nil && p.strangers > 0
			from, err := p.acquire(n)
			if err == nil {
				all = append(all, n)
			}
			if entitled && err != nil || from != nil && (from.held || from.authenticated || from.source == n.source) {
				t.Fatalf("seed %d: %+v has the place of %+v: %v", seed, n, from, err)
			}
			checkPlaces(t, seed, p, all)
		}
		for _, n := range all {
			p.give(n)
		}
		if p.all != 0 || p.strangers != 0 || len(p.anonymous) != 0 {
			t.Fatalf("seed %d: left over: %+v", seed, p)
		}
	}
}

func checkPlaces(t *testing.T, seed uint64, p *places, all []*place) {
	t.Helper()
	held, strangers, anonymous := 0, 0, make(map[netip.Prefix]int)
	for _, n := range all {
		if !n.held {
			continue
		}
		held++
		if n.stranger() {
			strangers++
		}
		if !n.authenticated {
			anonymous[n.source]++
		}
	}
	if held != p.all || held > p.limits.Max || strangers != p.strangers || strangers > p.limits.Max-p.limits.Max/4 {
		t.Fatalf("seed %d: %d places, counted %d; %d of strangers, counted %d", seed, held, p.all, strangers, p.strangers)
	}
	for source, n := range anonymous {
		if n > knownSourceFactor*p.limits.PerSource || n != p.anonymous[source].size(false) {
			t.Fatalf("seed %d: %s has %d places, counted %d", seed, source, n, p.anonymous[source].size(false))
		}
	}
}
