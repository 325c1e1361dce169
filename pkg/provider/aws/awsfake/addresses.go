package awsfake

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

type assignReply struct {
	XMLName struct{} `xml:"AssignPrivateIpAddressesResponse"`
	header
	ID       string   `xml:"networkInterfaceId"`
	Assigned []string `xml:"assignedPrivateIpAddressesSet>item>privateIpAddress"`
}

// assignPrivateIPAddresses gives an interface addresses, all of them or none. What
// another one has is taken from that if the caller says so, unless it is its primary one.
func assignPrivateIPAddresses(c *Cloud, p *params) (any, error) {
	k, addrs, err := readAddresses(c, p, "PrivateIpAddress", netip.Addr.Is4)
	if err != nil {
		return nil, err
	}
	take, err := p.flag("AllowReassignment")
	if err != nil {
		return nil, err
	}
	now := c.cfg.Now()
	s, _ := c.cfg.subnet(k.subnet)
	at, h, _ := k.as(now)
	for _, addr := range addrs {
		holder, held := holderOf(c, s.VPC, addr, now)
		switch {
		case !s.assignable(addr):
			return nil, outside(addr)
		case holder == nil || holder == k:
		case held.ipv4[0] == addr:
			return nil, bad("InvalidParameterValue", "Address %s is the primary address of %s and can't be reassigned", addr, holder.id)
		case !take:
			return nil, inUse(addr)
		}
	}
	if err := fits(c, at, h.ipv4, addrs); err != nil {
		return nil, err
	}
	for _, addr := range addrs {
		holder, _ := holderOf(c, s.VPC, addr, now)
		if holder == k {
			continue
		}
		if holder != nil {
			holder.hold(now, func(h *holding) { h.ipv4 = without(h.ipv4, addr) })
		}
		k.hold(now, func(h *holding) { h.ipv4 = append(h.ipv4, addr) })
	}
	return &assignReply{ID: k.id, Assigned: texts(addrs)}, nil
}

type unassignReply struct {
	XMLName struct{} `xml:"UnassignPrivateIpAddressesResponse"`
	header
	Return bool `xml:"return"`
}

// unassignPrivateIPAddresses takes addresses from an interface, but never its primary one.
func unassignPrivateIPAddresses(c *Cloud, p *params) (any, error) {
	k, addrs, err := readAddresses(c, p, "PrivateIpAddress", netip.Addr.Is4)
	if err != nil {
		return nil, err
	}
	_, h, _ := k.as(c.cfg.Now())
	if slices.Contains(addrs, h.ipv4[0]) {
		return nil, bad("InvalidParameterValue", "The primary address %s of %s can't be unassigned", h.ipv4[0], k.id)
	}
	if err := hasAll(k, h.ipv4, addrs); err != nil {
		return nil, err
	}
	k.hold(c.cfg.Now(), func(h *holding) { h.ipv4 = without(h.ipv4, addrs...) })
	return &unassignReply{Return: true}, nil
}

type assign6Reply struct {
	XMLName struct{} `xml:"AssignIpv6AddressesResponse"`
	header
	ID       string   `xml:"networkInterfaceId"`
	Assigned []string `xml:"assignedIpv6Addresses>item"`
}

// assignIPv6Addresses gives an interface addresses that no other one has.
func assignIPv6Addresses(c *Cloud, p *params) (any, error) {
	k, addrs, err := readAddresses(c, p, "Ipv6Addresses", netip.Addr.Is6)
	if err != nil {
		return nil, err
	}
	now := c.cfg.Now()
	s, _ := c.cfg.subnet(k.subnet)
	at, h, _ := k.as(now)
	for _, addr := range addrs {
		if !s.IPv6.IsValid() || !s.IPv6.Contains(addr) {
			return nil, outside(addr)
		}
		if holder, _ := holderOf(c, s.VPC, addr, now); holder != nil && holder != k {
			return nil, inUse(addr)
		}
	}
	if err := fits(c, at, h.ipv6, addrs); err != nil {
		return nil, err
	}
	k.hold(now, func(h *holding) { h.ipv6 = append(without(h.ipv6, addrs...), addrs...) })
	return &assign6Reply{ID: k.id, Assigned: texts(addrs)}, nil
}

type unassign6Reply struct {
	XMLName struct{} `xml:"UnassignIpv6AddressesResponse"`
	header
	ID         string   `xml:"networkInterfaceId"`
	Unassigned []string `xml:"unassignedIpv6Addresses>item"`
}

func unassignIPv6Addresses(c *Cloud, p *params) (any, error) {
	k, addrs, err := readAddresses(c, p, "Ipv6Addresses", netip.Addr.Is6)
	if err != nil {
		return nil, err
	}
	_, h, _ := k.as(c.cfg.Now())
	if err := hasAll(k, h.ipv6, addrs); err != nil {
		return nil, err
	}
	k.hold(c.cfg.Now(), func(h *holding) { h.ipv6 = without(h.ipv6, addrs...) })
	return &unassign6Reply{ID: k.id, Unassigned: texts(addrs)}, nil
}

// readAddresses reads an interface, and addresses of one family, each of which is there
// once.
func readAddresses(c *Cloud, p *params, list string, family func(netip.Addr) bool) (*card, []netip.Addr, error) {
	if p.get("NetworkInterfaceId") == "" {
		return nil, nil, bad("MissingParameter", "The request must contain the parameter networkInterfaceId")
	}
	k, err := findCard(c, p.get("NetworkInterfaceId"))
	if err != nil {
		return nil, nil, err
	}
	all, err := p.list(list)
	if err != nil {
		return nil, nil, err
	}
	if len(all) == 0 {
		return nil, nil, bad("MissingParameter", "The request must contain the parameter %s", list)
	}
	var addrs []netip.Addr
	for _, text := range all {
		addr, err := readAddress(text, family)
		if err != nil {
			return nil, nil, err
		}
		if slices.Contains(addrs, addr) {
			return nil, nil, bad("InvalidParameterValue", "The address %s is there twice", addr)
		}
		addrs = append(addrs, addr)
	}
	return k, addrs, nil
}

func readAddress(text string, family func(netip.Addr) bool) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || !family(addr) || addr.Is4In6() || addr.Zone() != "" {
		return netip.Addr{}, bad("InvalidParameterValue", "invalid value for parameter address: [%.80s]", text)
	}
	return addr, nil
}

// fits refuses more addresses than an interface of the machine may have.
func fits(c *Cloud, at plug, has, more []netip.Addr) error {
	if at.in == nil {
		return nil
	}
	kind := c.cfg.typeOf(at.in.to.launch.kind)
	if kind.AddressesEach > 0 && len(without(has, more...))+len(more) > kind.AddressesEach {
		return bad("PrivateIpAddressLimitExceeded", "Number of private addresses will exceed limit of %d for %s.", kind.AddressesEach, kind.Name)
	}
	return nil
}

// hasAll refuses addresses of which some are not the interface's.
func hasAll(k *card, has, addrs []netip.Addr) error {
	if len(without(addrs, has...)) > 0 {
		return bad("InvalidParameterValue", "Some of [%s] addresses are not assigned to interface %s", strings.Join(texts(addrs), ", "), k.id)
	}
	return nil
}

func without(from []netip.Addr, addrs ...netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(from), func(a netip.Addr) bool { return slices.Contains(addrs, a) })
}

func texts(addrs []netip.Addr) (out []string) {
	for _, addr := range addrs {
		out = append(out, fmt.Sprint(addr))
	}
	return out
}
