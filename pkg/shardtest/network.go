package shardtest

import (
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// patienceOfTCP is the time after which TCP gives up a connection with unacknowledged data or
// keepalives. Listeners and peers of servers are configured so.
const patienceOfTCP = 30 * time.Second

// Network connects hosts, each with one address, by in-memory connections that have latency,
// can be cut, and break like TCP connections. It uses package time, so inside a synctest bubble
// the bubble's clock. Safe for concurrent use.
type Network struct {
	seed     uint64
	min, max time.Duration // one way

	mu    sync.Mutex
	hosts map[string]*Host
	links map[[2]string]*link
	opens uint64
}

// NewNetwork returns a network with latencies from min to max, drawn from seed.
func NewNetwork(seed uint64, least, most time.Duration) *Network {
	return &Network{seed: seed, min: least, max: most, hosts: map[string]*Host{}, links: map[[2]string]*link{}}
}

// link is the connection between two hosts.
type link struct {
	cut     bool
	cuts    int           // number of cuts, to distinguish them
	changed chan struct{} // closed and replaced when cut changes
}

// Host returns the machine with an address, creating it if needed.
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

// Cut stops all traffic between two hosts: bytes wait, connections hang, and break after
// patienceOfTCP.
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

// Heal ends a cut; waiting bytes arrive.
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
	here = n.end(from, l, src, at, hash(from.addr.String(), at.String()))
	there = n.end(to, l, at, src, hash(at.String(), from.addr.String()))
	here.peer, there.peer = there, here
	return here, there
}

func (n *Network) end(h *Host, l *link, local, remote netip.AddrPort, way uint64) *conn {
	return &conn{
		network: n, host: h, link: l, local: local, remote: remote, wake: make(chan struct{}, 1), done: make(chan struct{}), way: way,
	}
}

// latency returns the latency at this moment of one way between two hosts and a port. It depends
// on nothing else, such as the number of earlier writes: how many writes carry the same bytes
// differs between two runs of a seed.
func (n *Network) latency(way uint64) time.Duration {
	draw := rand.New(rand.NewPCG(n.seed^way, uint64(time.Now().UnixNano())))
	return n.min + time.Duration(draw.Int64N(int64(n.max-n.min)+1))
}

// Close of a connection takes it off its host.
func (n *Network) forget(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(c.host.conns, c)
}

// isCut reports whether a link is cut, and returns a channel that is closed when that changes.
func (n *Network) isCut(l *link) (bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return l.cut, l.changed
}

// hash returns the same value in every process, unlike hash/maphash.
func hash(parts ...string) uint64 {
	h := fnv.New64a()
	for _, s := range parts {
		_, _ = h.Write([]byte(s)) // never fails
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}

// HealAll ends all cuts.
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
