package awstest

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

// assignPrivateIPAddresses assigns addresses to an interface, all of them or none. An address of
// another interface is reassigned if the caller allows that, unless it is the primary one.
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
	at, h, _ := k.stateAt(now)
	for _, addr := range addrs {
		holder, held := holderOf(c, s.VPC, addr, now)
		switch {
		case !s.assignable(addr):
			return nil, outOfRange(addr)
		case holder == nil || holder == k:
		case held.ipv4[0] == addr:
			return nil, bad("InvalidParameterValue", "Address %s is the primary address of %s and can't be reassigned", addr, holder.id)
		case !take:
			return nil, inUse(addr)
		}
	}
	if err := checkAddressLimit(c, at, h.ipv4, addrs); err != nil {
		return nil, err
	}
	for _, addr := range addrs {
		holder, _ := holderOf(c, s.VPC, addr, now)
		if holder == k {
			continue
		}
		if holder != nil {
			holder.changeAddresses(now, func(h *addressSet) { h.ipv4 = without(h.ipv4, addr) })
		}
		k.changeAddresses(now, func(h *addressSet) { h.ipv4 = append(h.ipv4, addr) })
	}
	return &assignReply{ID: k.id, Assigned: addressStrings(addrs)}, nil
}

type unassignReply struct {
	XMLName struct{} `xml:"UnassignPrivateIpAddressesResponse"`
	header
	Return bool `xml:"return"`
}

// unassignPrivateIPAddresses removes addresses from an interface, but never its primary one.
func unassignPrivateIPAddresses(c *Cloud, p *params) (any, error) {
	k, addrs, err := readAddresses(c, p, "PrivateIpAddress", netip.Addr.Is4)
	if err != nil {
		return nil, err
	}
	_, h, _ := k.stateAt(c.cfg.Now())
	if slices.Contains(addrs, h.ipv4[0]) {
		return nil, bad("InvalidParameterValue", "The primary address %s of %s can't be unassigned", h.ipv4[0], k.id)
	}
	if err := checkAssigned(k, h.ipv4, addrs); err != nil {
		return nil, err
	}
	k.changeAddresses(c.cfg.Now(), func(h *addressSet) { h.ipv4 = without(h.ipv4, addrs...) })
	return &unassignReply{Return: true}, nil
}

type assign6Reply struct {
	XMLName struct{} `xml:"AssignIpv6AddressesResponse"`
	header
	ID       string   `xml:"networkInterfaceId"`
	Assigned []string `xml:"assignedIpv6Addresses>item"`
}

// assignIPv6Addresses assigns addresses that no other interface has.
func assignIPv6Addresses(c *Cloud, p *params) (any, error) {
	k, addrs, err := readAddresses(c, p, "Ipv6Addresses", netip.Addr.Is6)
	if err != nil {
		return nil, err
	}
	now := c.cfg.Now()
	s, _ := c.cfg.subnet(k.subnet)
	at, h, _ := k.stateAt(now)
	for _, addr := range addrs {
		if !s.IPv6.IsValid() || !s.IPv6.Contains(addr) {
			return nil, outOfRange(addr)
		}
		if holder, _ := holderOf(c, s.VPC, addr, now); holder != nil && holder != k {
			return nil, inUse(addr)
		}
	}
	if err := checkAddressLimit(c, at, h.ipv6, addrs); err != nil {
		return nil, err
	}
	k.changeAddresses(now, func(h *addressSet) { h.ipv6 = append(without(h.ipv6, addrs...), addrs...) })
	return &assign6Reply{ID: k.id, Assigned: addressStrings(addrs)}, nil
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
	_, h, _ := k.stateAt(c.cfg.Now())
	if err := checkAssigned(k, h.ipv6, addrs); err != nil {
		return nil, err
	}
	k.changeAddresses(c.cfg.Now(), func(h *addressSet) { h.ipv6 = without(h.ipv6, addrs...) })
	return &unassign6Reply{ID: k.id, Unassigned: addressStrings(addrs)}, nil
}

// readAddresses reads an interface and a list of addresses of one family, without duplicates.
func readAddresses(c *Cloud, p *params, list string, family func(netip.Addr) bool) (*networkInterface, []netip.Addr, error) {
	if p.get("NetworkInterfaceId") == "" {
		return nil, nil, bad("MissingParameter", "The request must contain the parameter networkInterfaceId")
	}
	k, err := findInterface(c, p.get("NetworkInterfaceId"))
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

// checkAddressLimit refuses more addresses than an interface of this instance type may have.
func checkAddressLimit(c *Cloud, at attachmentState, has, more []netip.Addr) error {
	if at.attachment == nil {
		return nil
	}
	kind := c.cfg.typeOf(at.attachment.machine.launch.kind)
	if kind.AddressesEach > 0 && len(without(has, more...))+len(more) > kind.AddressesEach {
		return bad("PrivateIpAddressLimitExceeded", "Number of private addresses will exceed limit of %d for %s.", kind.AddressesEach, kind.Name)
	}
	return nil
}

// checkAssigned refuses addresses that the interface does not have.
func checkAssigned(k *networkInterface, has, addrs []netip.Addr) error {
	if len(without(addrs, has...)) > 0 {
		return bad("InvalidParameterValue", "Some of [%s] addresses are not assigned to interface %s",
			strings.Join(addressStrings(addrs), ", "), k.id)
	}
	return nil
}

func without(from []netip.Addr, addrs ...netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(from), func(a netip.Addr) bool { return slices.Contains(addrs, a) })
}

func addressStrings(addrs []netip.Addr) (out []string) {
	for _, addr := range addrs {
		out = append(out, fmt.Sprint(addr))
	}
	return out
}
