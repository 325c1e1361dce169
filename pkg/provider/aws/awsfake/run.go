package awsfake

import (
	"fmt"
	"net/http"
	"net/netip"
	"time"
)

// launch is what a call of RunInstances asks for.
type launch struct {
	token     string
	image     Image
	kind      string // the instance type
	subnet    string
	groups    []string
	keyName   string
	spot      bool
	tokens    string // of the metadata service: optional or required
	protected bool
	publicIP  bool
	userdata  []byte
	tags      map[string]string
	params    map[string]string
}

// runReply is the reply to RunInstances.
type runReply struct {
	XMLName struct{} `xml:"RunInstancesResponse"`
	header
	reservation
}

// runInstances launches one machine. A client token that came before decides first:
// what it made is there, whatever the cloud has room for now.
func (c *Cloud) runInstances(p *params) (any, error) {
	now, digest := c.cfg.Now(), p.canonical()
	token := p.get("ClientToken")
	if err := checkToken(token); err != nil {
		return nil, err
	}
	if m, ok := c.byToken[token]; ok && token != "" {
		return c.repeat(m, now, digest)
	}
	l, err := c.readLaunch(p)
	if err != nil {
		return nil, err
	}
	if err := c.checkLimits(l, now); err != nil {
		return nil, err
	}
	address, err := c.place(l, now)
	if err != nil {
		return nil, err
	}
	m := c.add(l, address, digest)
	first, _ := m.as(now)
	if c.cfg.Boot == 0 {
		first.state = pending() // as every reply to a launch says
	}
	return &runReply{reservation: c.reservationOf(m, first)}, nil
}

// repeat answers a client token that came before.
func (c *Cloud) repeat(m *machine, now time.Time, digest string) (any, error) {
	what, ok := m.as(now)
	switch {
	case !ok || what.state == terminated():
		return nil, bad("IdempotentInstanceTerminated",
			"The request to launch instance %s uses the client token of a request for an instance that has been terminated.", m.id)
	case m.digest != digest:
		return nil, bad("IdempotentParameterMismatch",
			"Arguments on this idempotent request are inconsistent with arguments used in previous request(s).")
	default:
		return &runReply{reservation: c.reservationOf(m, what)}, nil
	}
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

// pool is where capacity is.
type pool struct{ kind, subnet string }

// checkLimits refuses what the account may not have, or the zone has not.
func (c *Cloud) checkLimits(l launch, now time.Time) error {
	machines, cpus := 0, c.cfg.typeOf(l.kind).CPUs
	var inPool int
	for _, m := range c.here(now) {
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
	if limit, ok := c.capacity[pool{l.kind, l.subnet}]; ok && inPool >= limit {
		return &Error{Code: "InsufficientInstanceCapacity", Status: http.StatusInternalServerError,
			Message: fmt.Sprintf("We currently do not have sufficient %s capacity in the Availability Zone you requested.", l.kind)}
	}
	return nil
}

// place finds an address in the machine's subnet.
func (c *Cloud) place(l launch, now time.Time) (netip.Addr, error) {
	s, ok := c.cfg.subnet(l.subnet)
	if !ok {
		return netip.Addr{}, bad("InvalidSubnetID.NotFound", "The subnet ID '%.80s' does not exist", l.subnet)
	}
	taken := map[netip.Addr]bool{}
	for _, m := range c.here(now) {
		taken[m.address] = true
	}
	addr := s.CIDR.Masked().Addr()
	for n := range s.size() - 1 { // the last is the broadcast address
		if n >= reservedAtStart && !taken[addr] {
			return addr, nil
		}
		addr = addr.Next()
	}
	return netip.Addr{}, bad("InsufficientFreeAddressesInSubnet",
		"There are not enough free addresses in subnet '%s' to satisfy the requested number of instances.", l.subnet)
}
