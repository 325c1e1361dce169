package awsfake

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// card is a network interface. As with machines, what of it changes is written as what
// it is from which moment on: where it is plugged in, and what addresses it has.
type card struct {
	id      string
	mac     string
	order   int
	subnet  string
	groups  []string
	tags    map[string]string
	plugs   []plug
	holding []holding
}

// plug is where a card is plugged in from some time on.
type plug struct {
	at     time.Time
	status string      // attaching, attached or detaching; empty: it is free
	in     *attachment // nil: it is free
}

// attachment is a card in a machine. Each is another one, also of the same two.
type attachment struct {
	id    string
	to    *machine
	index int
	at    time.Time
	ends  bool // the card ends with the machine
}

// holding are the addresses of a card from some time on. The first of IPv4 is its
// primary one, which it always keeps.
type holding struct {
	at   time.Time
	ipv4 []netip.Addr
	ipv6 []netip.Addr
}

// as returns what the card was at a time; ok is false when it was not there. What was
// in a machine is free once that has ended.
func (k *card) as(t time.Time) (p plug, h holding, ok bool) {
	for _, one := range slices.Backward(k.holding) {
		if ok = !one.at.After(t); ok {
			h = one
			break
		}
	}
	for _, one := range slices.Backward(k.plugs) {
		if !one.at.After(t) {
			p = one
			break
		}
	}
	if p.in != nil && !p.in.to.takesRoom(t) {
		ok = ok && !p.in.ends
		p = plug{at: p.at}
	}
	return p, h, ok
}

// put replaces what is to come of where the card is plugged in.
func (k *card) put(now time.Time, next ...plug) {
	k.plugs = append(slices.DeleteFunc(k.plugs, func(p plug) bool { return p.at.After(now) }), next...)
}

// hold changes the card's addresses.
func (k *card) hold(now time.Time, change func(h *holding)) {
	_, h, _ := k.as(now)
	h = holding{at: now, ipv4: slices.Clone(h.ipv4), ipv6: slices.Clone(h.ipv6)}
	change(&h)
	k.holding = append(k.holding, h)
}

// state is what EC2 says of a card that is plugged in so.
func (p plug) state() string {
	switch p.status {
	case "":
		return "available"
	case "attached":
		return "in-use"
	default:
		return p.status
	}
}

// addCard puts a card into the cloud. The caller holds the lock.
func addCard(c *Cloud, k card, h holding) *card {
	k.id, k.mac, k.order = "eni-"+hexID(c.random), mac(c.random), len(c.cards)
	k.holding = []holding{h}
	c.cards = append(c.cards, &k)
	return &k
}

// plugIn plugs a card into a machine. The caller has checked all.
func plugIn(c *Cloud, k *card, m *machine, index int, attaching time.Duration, ends bool) *attachment {
	now := c.cfg.Now()
	in := &attachment{id: "eni-attach-" + hexID(c.random), to: m, index: index, at: now, ends: ends}
	k.put(now, plug{now, "attaching", in}, plug{now.Add(attaching), "attached", in})
	if !slices.Contains(m.cards, k) {
		m.cards = append(m.cards, k)
	}
	return in
}

// cardsOf are those in a machine at a time, by their index.
func (m *machine) cardsOf(t time.Time) []*card {
	in := func(k *card) *attachment {
		p, _, ok := k.as(t)
		if !ok || p.in == nil || p.in.to != m {
			return nil
		}
		return p.in
	}
	found := slices.DeleteFunc(slices.Clone(m.cards), func(k *card) bool { return in(k) == nil })
	slices.SortFunc(found, func(a, b *card) int { return in(a).index - in(b).index })
	return found
}

// findCard returns a card that is there now.
func findCard(c *Cloud, id string) (*card, error) {
	if !interfaceID.MatchString(id) {
		return nil, bad("InvalidNetworkInterfaceId.Malformed", "Invalid id: \"%.80s\"", id)
	}
	for _, k := range c.cards {
		if _, _, ok := k.as(c.cfg.Now()); ok && k.id == id {
			return k, nil
		}
	}
	return nil, bad("InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '%s' does not exist", id)
}

// holderOf returns the card of a VPC that has an address now, nil if none does.
func holderOf(c *Cloud, vpc string, addr netip.Addr, now time.Time) (*card, holding) {
	for _, k := range c.cards {
		_, h, ok := k.as(now)
		if ok && c.cfg.vpcOf(k.subnet) == vpc && (slices.Contains(h.ipv4, addr) || slices.Contains(h.ipv6, addr)) {
			return k, h
		}
	}
	return nil, holding{}
}

func mac(r *rand.Rand) string {
	n := r.Uint64()
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", byte(n), byte(n>>8), byte(n>>16), byte(n>>24), byte(n>>32))
}

// Interface is one network interface as it is now, for tests.
type Interface struct {
	ID         string
	MAC        string
	Subnet     string
	Status     string // available, attaching, in-use or detaching
	Instance   string // that it is in; empty: none
	Attachment string
	Index      int
	Addresses  []netip.Addr // of IPv4, the primary one first, and then of IPv6
	Tags       map[string]string
}

// Interfaces returns all that are there, in the order in which they came.
func (c *Cloud) Interfaces() []Interface {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Interface
	for _, k := range c.cards {
		p, h, ok := k.as(c.cfg.Now())
		if !ok {
			continue
		}
		i := Interface{
			ID: k.id, MAC: k.mac, Subnet: k.subnet, Status: p.state(), Addresses: slices.Concat(h.ipv4, h.ipv6), Tags: maps.Clone(k.tags),
		}
		if p.in != nil {
			i.Instance, i.Attachment, i.Index = p.in.to.id, p.in.id, p.in.index
		}
		out = append(out, i)
	}
	return out
}
