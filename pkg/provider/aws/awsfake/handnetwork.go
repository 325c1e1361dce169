package awsfake

import (
	"fmt"
	"maps"
	"net/netip"
	"time"
)

// PlantInterface makes a network interface that is in no machine, and returns its id.
// The zero address of IPv4 is any that is free; that of IPv6 is none.
func (c *Cloud) PlantInterface(subnet string, ipv4, ipv6 netip.Addr, tags map[string]string) (id string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Now()
	own, err := placeAll(c, launch{nics: []nic{{subnet: subnet, want: ipv4}}}, now)
	if err != nil {
		return "", fmt.Errorf("plant an interface in %.80s: %w", subnet, err)
	}
	h := holding{at: now, ipv4: own}
	if ipv6.IsValid() {
		s, _ := c.cfg.subnet(subnet)
		if taken, _ := holderOf(c, s.VPC, ipv6, now); taken != nil || !s.IPv6.Contains(ipv6) {
			return "", fmt.Errorf("plant an interface in %s: %s is taken, or not of this subnet", subnet, ipv6)
		}
		h.ipv6 = []netip.Addr{ipv6}
	}
	return addCard(c, card{subnet: subnet, tags: maps.Clone(tags)}, h).id, nil
}

// Tag replaces the tags of a machine or a network interface, as somebody would by hand. It
// returns an error when there is none.
func (c *Cloud) Tag(id string, tags map[string]string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m, ok := c.byID[id]; ok {
		m.launch.tags = maps.Clone(tags)
		return nil
	}
	k, err := findCard(c, id)
	if err != nil {
		return fmt.Errorf("tag a machine or an interface: %w", err)
	}
	k.tags = maps.Clone(tags)
	return nil
}

// Hang has a machine let go of no interface any more, unless by force. It returns an
// error when there is none.
func (c *Cloud) Hang(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(id)
	if err == nil {
		m.hangs = true
	}
	return err
}

// Interrupt tells a spot machine by its metadata that it ends after a while, and ends it
// then. It returns an error when there is no such machine, or it is none of spot.
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
