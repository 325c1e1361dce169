package shardtest

import (
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// patienceOfTCP is how long the two ends of a connection go without a word from
// each other, when there is something to say or a keepalive asks, before their
// systems give up. It is what a server's listeners and peers are set to.
const patienceOfTCP = 30 * time.Second

// Network connects hosts, each with one address, by connections in memory that
// take time, can be cut, and break as those of TCP do. It lives on the standard
// library's time, so inside a synctest bubble on the bubble's. Safe for
// concurrent use.
type Network struct {
	seed     uint64
	min, max time.Duration // one way

	mu    sync.Mutex
	hosts map[string]*Host
	links map[[2]string]*link
	opens uint64
}

// NewNetwork makes a network on which a byte takes from min to max to arrive.
// The latencies are drawn from seed.
func NewNetwork(seed uint64, least, most time.Duration) *Network {
	return &Network{seed: seed, min: least, max: most, hosts: map[string]*Host{}, links: map[[2]string]*link{}}
}

// link is what two hosts have between them.
type link struct {
	cut     bool
	cuts    int           // how often it was cut, to tell one cut from the next
	changed chan struct{} // closed and made anew when cut changes
}

// Host returns the machine with an address, which is up from its first mention.
func (n *Network) Host(addr string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.host(netip.MustParseAddr(addr))
}

func (n *Network) host(addr netip.Addr) *Host {
	h, ok := n.hosts[addr.String()]
	if !ok {
		h = &Host{network: n, addr: addr, up: true, listeners: map[uint16]*listener{}, conns: map[*conn]struct{}{}, given: 9999}
		n.hosts[addr.String()] = h
	}
	return h
}

func (n *Network) link(a, b string) *link {
	if a > b {
		a, b = b, a
	}
	l, ok := n.links[[2]string{a, b}]
	if !ok {
		l = &link{changed: make(chan struct{})}
		n.links[[2]string{a, b}] = l
	}
	return l
}

// Cut stops everything between two hosts: bytes wait, connections hang, and
// after half a minute their systems give up.
func (n *Network) Cut(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.link(a, b)
	if l.cut {
		return
	}
	l.cut = true
	l.cuts++
	l.turn()
	cuts := l.cuts
	time.AfterFunc(patienceOfTCP, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if l.cut && l.cuts == cuts {
			n.breakBetween(a, b, syscall.ETIMEDOUT)
		}
	})
}

// Heal lets two hosts reach each other again; what waited arrives.
func (n *Network) Heal(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.link(a, b); l.cut {
		l.cut = false
		l.turn()
	}
}

func (l *link) turn() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (n *Network) breakBetween(a, b string, err error) {
	for c := range n.host(netip.MustParseAddr(a)).conns {
		if c.remote.Addr().String() == b {
			c.fail(err)
			c.peer.fail(err)
		}
	}
}

func (n *Network) pair(from, to *Host, l *link, at netip.AddrPort, nth uint64) (here, there *conn) {
	port := uint16(20000 + nth%40000)
	src := netip.AddrPortFrom(from.addr, port)
	here = n.end(from, l, src, at, nth)
	there = n.end(to, l, at, src, nth)
	here.peer, there.peer = there, here
	return here, there
}

func (n *Network) end(h *Host, l *link, local, remote netip.AddrPort, nth uint64) *conn {
	return &conn{
		network: n, host: h, link: l, local: local, remote: remote, wake: make(chan struct{}, 1), done: make(chan struct{}),
		draw: rand.New(rand.NewPCG(n.seed, hash(local.Addr().String(), remote.Addr().String())+nth)),
	}
}

// Close of a connection takes it off its host.
func (n *Network) forget(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(c.host.conns, c)
}

// isCut reports whether a link is cut now, and what tells of a change.
func (n *Network) isCut(l *link) (bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return l.cut, l.changed
}

// hash is the same in every process, unlike the runtime's own.
func hash(parts ...string) uint64 {
	h := fnv.New64a()
	for _, s := range parts {
		_, _ = h.Write([]byte(s)) // never fails
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}

// HealAll lets all hosts reach each other again.
func (n *Network) HealAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		if l.cut {
			l.cut = false
			l.turn()
		}
	}
}
