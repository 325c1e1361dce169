package awstest

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"
)

// launch is a call of RunInstances.
type launch struct {
	token     string
	image     Image
	kind      string // the instance type
	subnet    string
	nics      []nic // the primary one first
	nicTags   map[string]string
	keyName   string
	spot      bool
	tokens    string // of the metadata service: optional or required
	protected bool
	publicIP  bool
	userdata  []byte
	tags      map[string]string
	params    map[string]string
}

// nic is a network interface that is created with a machine.
type nic struct {
	index               int
	subnet              string
	groups              []string
	address             netip.Addr // zero: any
	deleteOnTermination bool       // with the machine
}

// runReply is the reply to RunInstances.
type runReply struct {
	XMLName struct{} `xml:"RunInstancesResponse"`
	header
	reservation
}

// runInstances launches one machine. A client token that was used before decides first: its machine
// is returned, whatever the capacity is now. A launch that was refused for lack of capacity keeps
// its token: the same launch may be repeated with it, but no other.
func (c *Cloud) runInstances(p *params) (any, error) {
	now, digest := c.cfg.Now(), p.canonical()
	token := p.get("ClientToken")
	if err := checkToken(token); err != nil {
		return nil, err
	}
	if m, ok := c.byToken[token]; ok && token != "" {
		return replayLaunch(c, m, now, digest)
	}
	if first, ok := c.refused[token]; ok && first != digest {
		return nil, parameterMismatch()
	}
	l, err := c.readLaunch(p)
	if err != nil {
		return nil, err
	}
	addresses, err := c.allocate(l, now)
	if err != nil {
		if token != "" && isCapacityError(err) {
			c.refused[token] = digest
		}
		return nil, err
	}
	m := c.add(l, addresses, digest)
	first, _ := m.stateAt(now)
	if c.cfg.Boot == 0 {
		first.state = pending() // as in every reply to a launch
	}
	return &runReply{reservation: reservationOf(c, m, first)}, nil
}

// replayLaunch returns the result of the launch that used the client token before.
func replayLaunch(c *Cloud, m *machine, now time.Time, digest string) (any, error) {
	what, ok := m.stateAt(now)
	switch {
	case !ok || what.state == terminated():
		return nil, bad("IdempotentInstanceTerminated",
			"The request to launch instance %s uses the client token of a request for an instance that has been terminated.", m.id)
	case m.digest != digest:
		return nil, parameterMismatch()
	default:
		return &runReply{reservation: reservationOf(c, m, what)}, nil
	}
}

func parameterMismatch() error {
	return bad("IdempotentParameterMismatch",
		"Arguments on this idempotent request are inconsistent with arguments used in previous request(s).")
}

func checkToken(token string) error {
	if len(token) > 64 {
		return bad("InvalidParameterValue", "Value (%.80s) for parameter clientToken is invalid. It has more than 64 characters.", token)
	}
	for _, r := range token {
		if r < ' ' || r > '~' {
			return bad("InvalidParameterValue", "Value (%q) for parameter clientToken is invalid. It has to be ASCII.", token)
		}
	}
	return nil
}

// pool identifies a part of the cloud's capacity.
type pool struct{ kind, subnet string }

// checkLimits refuses a launch beyond the account's limits or the zone's capacity.
func checkLimits(c *Cloud, l launch, now time.Time) error {
	kind := c.cfg.typeOf(l.kind)
	machines, cpus := 0, kind.CPUs
	var inPool int
	for _, m := range c.occupying(now) {
		machines++
		cpus += c.cfg.typeOf(m.launch.kind).CPUs
		if m.launch.kind == l.kind && m.launch.subnet == l.subnet {
			inPool++
		}
	}
	if limit := c.cfg.InstanceLimit; limit > 0 && machines >= limit {
		return bad("InstanceLimitExceeded",
			"You have requested more instances (%d) than your current instance limit of %d allows.", machines+1, limit)
	}
	if limit := c.cfg.VCPULimit; limit > 0 && cpus > limit {
		return bad("VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit of %d allows.", limit)
	}
	if limit := kind.Interfaces; limit > 0 && len(l.nics) > limit {
		return tooMany(len(l.nics), kind)
	}
	if limit, ok := c.capacity[pool{l.kind, l.subnet}]; ok && inPool >= limit {
		return &Error{Code: "InsufficientInstanceCapacity", Status: http.StatusInternalServerError,
			Message: fmt.Sprintf("We currently do not have sufficient %s capacity in the Availability Zone you requested.", l.kind)}
	}
	return nil
}

// allocate returns an address for each interface of the machine, if limits and capacity allow the
// machine.
func (c *Cloud) allocate(l launch, now time.Time) ([]netip.Addr, error) {
	if err := checkLimits(c, l, now); err != nil {
		return nil, err
	}
	return allocateAddresses(c, l, now)
}

// isCapacityError reports whether a valid launch was refused for lack of capacity.
func isCapacityError(err error) bool {
	var refusal *Error
	return errors.As(err, &refusal) && slices.Contains([]string{
		"InsufficientFreeAddressesInSubnet", "InsufficientInstanceCapacity", "InstanceLimitExceeded", "VcpuLimitExceeded",
	}, refusal.Code)
}

// inVPC is an address within a VPC; VPCs may overlap.
type inVPC struct {
	vpc  string
	addr netip.Addr
}

// allocateAddresses returns an address for each interface of the machine, in its subnet.
func allocateAddresses(c *Cloud, l launch, now time.Time) ([]netip.Addr, error) {
	taken := map[inVPC]bool{}
	for _, k := range c.interfaces {
		_, h, ok := k.stateAt(now)
		for _, addr := range h.ipv4 {
			at := inVPC{c.cfg.vpcOf(k.subnet), addr}
			taken[at] = taken[at] || ok
		}
	}
	out := make([]netip.Addr, 0, len(l.nics))
	zone := ""
	for _, nic := range l.nics {
		s, ok := c.cfg.subnet(nic.subnet)
		switch {
		case !ok:
			return nil, bad("InvalidSubnetID.NotFound", "The subnet ID '%.80s' does not exist", nic.subnet)
		case zone != "" && s.Zone != zone:
			return nil, bad("InvalidParameterCombination", "The network interfaces of an instance must be in one availability zone.")
		}
		addr, err := s.freeAddress(nic.address, taken)
		if err != nil {
			return nil, err
		}
		taken[inVPC{s.VPC, addr}], zone = true, s.Zone
		out = append(out, addr)
	}
	return out, nil
}

// freeAddress returns want if it is free; if want is zero, the first free address.
func (s Subnet) freeAddress(want netip.Addr, taken map[inVPC]bool) (netip.Addr, error) {
	switch {
	case want.IsValid() && !s.assignable(want):
		return netip.Addr{}, outOfRange(want)
	case want.IsValid() && taken[inVPC{s.VPC, want}]:
		return netip.Addr{}, inUse(want)
	case want.IsValid():
		return want, nil
	}
	for addr := s.CIDR.Masked().Addr(); s.CIDR.Contains(addr); addr = addr.Next() {
		if s.assignable(addr) && !taken[inVPC{s.VPC, addr}] {
			return addr, nil
		}
	}
	return netip.Addr{}, bad("InsufficientFreeAddressesInSubnet",
		"There are not enough free addresses in subnet '%s' to satisfy the requested number of instances.", s.ID)
}

func outOfRange(addr netip.Addr) error {
	return bad("InvalidParameterValue", "Address %s does not fall within the subnet's address range", addr)
}

func inUse(addr netip.Addr) error {
	return bad("InvalidIPAddress.InUse", "The specified IP address is already in use: %s", addr)
}
