package awstest

import (
	"fmt"
	"maps"
	"net/netip"
	"time"
)

// AddInterface adds a detached network interface, and returns its id. The zero IPv4 address means
// any free one; the zero IPv6 address means none.
func (c *Cloud) AddInterface(subnet string, ipv4, ipv6 netip.Addr, tags map[string]string) (id string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Now()
	own, err := allocateAddresses(c, launch{nics: []nic{{subnet: subnet, address: ipv4}}}, now)
	if err != nil {
		return "", fmt.Errorf("plant an interface in %.80s: %w", subnet, err)
	}
	h := addressSet{at: now, ipv4: own}
	if ipv6.IsValid() {
		s, _ := c.cfg.subnet(subnet)
		if taken, _ := holderOf(c, s.VPC, ipv6, now); taken != nil || !s.IPv6.Contains(ipv6) {
			return "", fmt.Errorf("plant an interface in %s: %s is taken, or not of this subnet", subnet, ipv6)
		}
		h.ipv6 = []netip.Addr{ipv6}
	}
	return addInterface(c, networkInterface{subnet: subnet, tags: maps.Clone(tags)}, h).id, nil
}

// Tag replaces the tags of a machine or a network interface. It returns an error if there is none
// with this id.
func (c *Cloud) Tag(id string, tags map[string]string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m, ok := c.byID[id]; ok {
		m.launch.tags = maps.Clone(tags)
		return nil
	}
	k, err := findInterface(c, id)
	if err != nil {
		return fmt.Errorf("tag a machine or an interface: %w", err)
	}
	k.tags = maps.Clone(tags)
	return nil
}

// Hang stops a machine from releasing its interfaces, unless by force. It returns an error if the
// machine is unknown.
func (c *Cloud) Hang(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(id)
	if err == nil {
		m.hangs = true
	}
	return err
}

// Interrupt announces the termination of a spot machine in its metadata, and terminates it at that
// time. It returns an error if the machine is unknown or not a spot machine.
func (c *Cloud) Interrupt(id string, after time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(id)
	if err != nil {
		return err
	}
	if !m.launch.spot {
		return fmt.Errorf("machine %s is none of spot", id)
	}
	m.notice = c.cfg.Now().Add(after)
	const code = "Server.SpotInstanceTermination"
	c.terminate(m, m.notice, reason{code, code + ": Spot instance termination"})
	return nil
}
