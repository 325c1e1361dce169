package rpc

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// gate counts the decisions of an admission.
type gate struct {
	t *testing.T
	*admission
	all []*visit
}

func newGate(t *testing.T, l HandshakeLimits) *gate { return &gate{t: t, admission: newAdmission(l)} }

func prefixOf(text string) netip.Prefix {
	addr := netip.MustParseAddr(text)
	p, _ := addr.Prefix(map[bool]int{true: 32, false: 64}[addr.Is4()])
	return p
}

// come makes n connections arrive and returns how many run, wait and are refused.
func (g *gate) come(n int, from string, instance bool) (visits []*visit, ran, waited, turnedAway int) {
	for range n {
		v := &visit{source: prefixOf(from), instance: instance}
		switch g.arrive(v) {
		case admitted:
			ran++
		case waits:
			waited++
		case refused:
			turnedAway++
			continue
		}
		visits = append(visits, v)
		g.all = append(g.all, v)
	}
	return visits, ran, waited, turnedAway
}

func (g *gate) want(what string, n int, from string, instance bool, ran, waited, turnedAway int) []*visit {
	g.t.Helper()
	visits, r, w, f := g.come(n, from, instance)
	if r != ran || w != waited || f != turnedAway {
		g.t.Errorf("%s: %d began, %d wait, %d refused; want %d, %d, %d", what, r, w, f, ran, waited, turnedAway)
	}
	return visits
}

func TestAdmission(t *testing.T) {
	limits := DefaultHandshakeLimits()
	t.Run("a stranger has 32, and a quarter of the waiting", func(t *testing.T) {
		g := newGate(t, limits)
		g.want("flood", 2000, "192.0.2.1", false, 32, 1024, 944)
		g.want("another", 1, "192.0.2.2", false, 1, 0, 0)
		g.want("loopback", 40, "127.0.0.1", false, 32, 8, 0)
		g.want("one /64", 40, "fd00::1", false, 32, 8, 0)
		g.want("the same /64", 1, "fd00::ffff:1", false, 0, 1, 0)
		g.want("an instance's own address in it", 1, "fd00::2", true, 1, 0, 0)
	})
	t.Run("strangers leave half to known sources", func(t *testing.T) {
		g := newGate(t, limits)
		for n := range 100 {
			g.come(2000, netip.AddrFrom4([4]byte{198, 51, 100, byte(n)}).String(), false)
		}
		if g.running != (counts{512, 512}) || g.waiting != (counts{3072, 3072}) {
			t.Fatalf("running %+v, waiting %+v", g.running, g.waiting)
		}
		g.want("a stranger more", 1, "192.0.2.1", false, 0, 0, 1)
		g.want("an instance", 1, "192.0.2.2", true, 1, 0, 0)
		g.want("a thousand at an instance's address", 999, "192.0.2.2", true, 255, 744, 0)
		g.want("another instance", 200, "192.0.2.3", true, 128, 72, 0)
	})
	t.Run("two known sources leave room for others", func(t *testing.T) {
		g := newGate(t, limits)
		first := g.want("one", 600, "10.0.0.1", true, 512, 88, 0)
		g.want("the other", 600, "10.0.0.2", true, 256, 344, 0)
		g.want("a third", 200, "10.0.0.3", true, 128, 72, 0)
		g.want("a stranger", 40, "192.0.2.1", false, 32, 8, 0)
		if g.next() != nil {
			t.Error("one of those that wait began")
		}
		for _, v := range first[:512] {
			g.leave(v)
		}
		begun := 0
		for g.next() != nil {
			begun++
		}
		if g.running.all != 768 || begun != 768-416 {
			t.Errorf("%d began after 512 ended, %d run, want %d and 768", begun, g.running.all, 768-416)
		}
	})
	t.Run("an authenticated source makes room for its neighbours", func(t *testing.T) {
		g := newGate(t, limits)
		visits := g.want("a thousand behind one address", 1000, "192.0.2.1", false, 32, 968, 0)
		g.establish(visits[0], true)
		begun := 0
		for g.next() != nil {
			begun++
		}
		if begun != 512-31 {
			t.Errorf("%d began, want %d", begun, 512-31)
		}
		g.leave(visits[0])
		if g.isKnown(visits[1]) {
			t.Error("the source is known without a connection")
		}
	})
	t.Run("a registration makes no source known", func(t *testing.T) {
		g := newGate(t, limits)
		visits := g.want("strangers", 40, "192.0.2.1", false, 32, 8, 0)
		g.establish(visits[0], false)
		if g.next() == nil || g.next() != nil {
			t.Error("one place was given back, want one more to begin")
		}
	})
	t.Run("sources take turns", func(t *testing.T) {
		small := HandshakeLimits{Total: 2, Strangers: 2, PerSource: 2, PerKnownSource: 2, Waiting: 100}
		g := newGate(t, small)
		visits := g.want("many of one", 20, "192.0.2.1", false, 2, 18, 0)
		few := g.want("one of another", 1, "192.0.2.2", false, 0, 1, 0)
		g.leave(visits[0])
		first := g.next()
		g.leave(visits[1])
		if second := g.next(); first != visits[2] || second != few[0] {
			t.Error("the second source waits for more than one of the first")
		}
	})
}

// TestAdmissionCounts applies random operations: no limit is exceeded, no handshake waits
// while there is room, and at the end nothing is remembered.
func TestAdmissionCounts(t *testing.T) {
	for seed := range uint64(200) {
		limits := HandshakeLimits{Total: 12, Strangers: 6, PerSource: 1 + int(seed%2), PerKnownSource: 6, Waiting: 16}
		random := rand.New(rand.NewPCG(seed, 1))
		g := newGate(t, limits)
		for range 400 {
			switch random.IntN(4) {
			case 0, 1:
				g.come(1, netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(6))}).String(), random.IntN(5) == 0)
			case 2:
				if len(g.all) > 0 {
					g.establish(g.all[random.IntN(len(g.all))], random.IntN(3) == 0)
				}
			case 3:
				if len(g.all) > 0 {
					at := random.IntN(len(g.all))
					g.leave(g.all[at])
					g.leave(g.all[at])
					g.all = slices.Delete(g.all, at, at+1)
				}
			}
			for g.next() != nil {
			}
			g.check(seed)
		}
		for _, v := range g.all {
			g.leave(v)
		}
		if len(g.sources) != 0 || g.turns.Len() != 0 || g.running != (counts{}) || g.waiting != (counts{}) {
			t.Fatalf("seed %d: left over: %d sources, running %+v, waiting %+v", seed, len(g.sources), g.running, g.waiting)
		}
	}
}

func (g *gate) check(seed uint64) {
	var run, wait counts
	perSource := make(map[netip.Prefix]int)
	for _, v := range g.all {
		switch v.state {
		case running:
			run.add(1, v.stranger)
			perSource[v.source]++
		case waiting:
			wait.add(1, v.stranger)
		case gone, settled:
		}
	}
	l := g.limits
	if run != g.running || wait != g.waiting || run.all > l.Total || run.strangers > l.Strangers || wait.all > l.Waiting {
		g.t.Fatalf("seed %d: running %+v, counted %+v; waiting %+v, counted %+v", seed, run, g.running, wait, g.waiting)
	}
	for source, n := range perSource {
		if n > l.PerKnownSource || n != g.sources[source].running {
			g.t.Fatalf("seed %d: %d handshakes of %s, counted %d", seed, n, source, g.sources[source].running)
		}
	}
	for _, s := range g.sources {
		if s.queue.Len() > 0 && g.mayRun(s.queue.Front().Value.(*visit), s) {
			g.t.Fatalf("seed %d: %s waits beside free room", seed, s.prefix)
		}
	}
}
