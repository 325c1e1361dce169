package awstest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// networkInterface has timelines, as machines do: of its attachment, and of its addresses.
type networkInterface struct {
	id          string
	mac         string
	order       int
	subnet      string
	groups      []string
	tags        map[string]string
	attachments []attachmentState
	addresses   []addressSet
}

// attachmentState is the attachment of an interface from a time on.
type attachmentState struct {
	at         time.Time
	status     string      // attaching, attached or detaching; empty: detached
	attachment *attachment // nil: detached
}

// attachment connects an interface to a machine. Attaching the same two again makes another one.
type attachment struct {
	id                  string
	machine             *machine
	index               int
	at                  time.Time
	deleteOnTermination bool // the interface is deleted with the machine
}

// addressSet are the addresses of an interface from a time on. The first IPv4 address is the
// primary one, which never changes.
type addressSet struct {
	at   time.Time
	ipv4 []netip.Addr
	ipv6 []netip.Addr
}

// stateAt returns the interface's state at a time; ok is false if it did not exist. The interfaces
// of a terminated machine are detached.
func (k *networkInterface) stateAt(t time.Time) (p attachmentState, h addressSet, ok bool) {
	for _, one := range slices.Backward(k.addresses) {
		if ok = !one.at.After(t); ok {
			h = one
			break
		}
	}
	for _, one := range slices.Backward(k.attachments) {
		if !one.at.After(t) {
			p = one
			break
		}
	}
	if p.attachment != nil && !p.attachment.machine.occupiesCapacity(t) {
		ok = ok && !p.attachment.deleteOnTermination
		p = attachmentState{at: p.at}
	}
	return p, h, ok
}

// schedule replaces the future attachment states.
func (k *networkInterface) schedule(now time.Time, next ...attachmentState) {
	k.attachments = append(slices.DeleteFunc(k.attachments, func(p attachmentState) bool { return p.at.After(now) }), next...)
}

// changeAddresses changes the interface's addresses from now on.
func (k *networkInterface) changeAddresses(now time.Time, change func(h *addressSet)) {
	_, h, _ := k.stateAt(now)
	h = addressSet{at: now, ipv4: slices.Clone(h.ipv4), ipv6: slices.Clone(h.ipv6)}
	change(&h)
	k.addresses = append(k.addresses, h)
}

// interfaceStatus returns the status that EC2 reports for this attachment.
func (p attachmentState) interfaceStatus() string {
	switch p.status {
	case "":
		return "available"
	case "attached":
		return "in-use"
	default:
		return p.status
	}
}

// addInterface adds an interface. The caller holds the lock.
func addInterface(c *Cloud, k networkInterface, h addressSet) *networkInterface {
	k.id, k.mac, k.order = "eni-"+hexID(c.random), mac(c.random), len(c.interfaces)
	k.addresses = []addressSet{h}
	c.interfaces = append(c.interfaces, &k)
	return &k
}

// attach attaches an interface to a machine. The caller has checked that it may.
func attach(c *Cloud, k *networkInterface, m *machine, index int, attaching time.Duration, ends bool) *attachment {
	now := c.cfg.Now()
	in := &attachment{id: "eni-attach-" + hexID(c.random), machine: m, index: index, at: now, deleteOnTermination: ends}
	k.schedule(now, attachmentState{now, "attaching", in}, attachmentState{now.Add(attaching), "attached", in})
	if !slices.Contains(m.interfaces, k) {
		m.interfaces = append(m.interfaces, k)
	}
	return in
}

// attached returns the interfaces of a machine at a time, by device index.
func (m *machine) attached(t time.Time) []*networkInterface {
	in := func(k *networkInterface) *attachment {
		p, _, ok := k.stateAt(t)
		if !ok || p.attachment == nil || p.attachment.machine != m {
			return nil
		}
		return p.attachment
	}
	found := slices.DeleteFunc(slices.Clone(m.interfaces), func(k *networkInterface) bool { return in(k) == nil })
	slices.SortFunc(found, func(a, b *networkInterface) int { return in(a).index - in(b).index })
	return found
}

// findInterface returns an interface that exists now.
func findInterface(c *Cloud, id string) (*networkInterface, error) {
	if !interfaceID.MatchString(id) {
		return nil, bad("InvalidNetworkInterfaceId.Malformed", "Invalid id: \"%.80s\"", id)
	}
	for _, k := range c.interfaces {
		if _, _, ok := k.stateAt(c.cfg.Now()); ok && k.id == id {
			return k, nil
		}
	}
	return nil, bad("InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '%s' does not exist", id)
}

// holderOf returns the interface of a VPC that has an address now; nil: none has.
func holderOf(c *Cloud, vpc string, addr netip.Addr, now time.Time) (*networkInterface, addressSet) {
	for _, k := range c.interfaces {
		_, h, ok := k.stateAt(now)
		if ok && c.cfg.vpcOf(k.subnet) == vpc && (slices.Contains(h.ipv4, addr) || slices.Contains(h.ipv6, addr)) {
			return k, h
		}
	}
	return nil, addressSet{}
}

func mac(r *rand.Rand) string {
	n := r.Uint64()
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", byte(n), byte(n>>8), byte(n>>16), byte(n>>24), byte(n>>32))
}

// Interface is the present state of a network interface, for tests.
type Interface struct {
	ID         string
	MAC        string
	Subnet     string
	Status     string // available, attaching, in-use or detaching
	Instance   string // that it is attached to; empty: none
	Attachment string
	Index      int
	Addresses  []netip.Addr // the primary IPv4 one first, IPv6 ones last
	Tags       map[string]string
}

// Interfaces returns all interfaces that exist, in the order of their creation.
func (c *Cloud) Interfaces() []Interface {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Interface
	for _, k := range c.interfaces {
		p, h, ok := k.stateAt(c.cfg.Now())
		if !ok {
			continue
		}
		i := Interface{
			ID: k.id, MAC: k.mac, Subnet: k.subnet, Status: p.interfaceStatus(), Addresses: slices.Concat(h.ipv4, h.ipv6), Tags: maps.Clone(k.tags),
		}
		if p.attachment != nil {
			i.Instance, i.Attachment, i.Index = p.attachment.machine.id, p.attachment.id, p.attachment.index
		}
		out = append(out, i)
	}
	return out
}
