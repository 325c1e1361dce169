package awsfake

import (
	"fmt"
	"maps"
	"net/netip"
)

// SetCapacity sets how many machines of an instance type a subnet's zone has room for.
// Without it there is room for any number.
func (c *Cloud) SetCapacity(instanceType, subnet string, machines int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.capacity[pool{instanceType, subnet}] = machines
}

// Doom has the next n machines that are launched end when they should have begun to
// run, as those do whose volume can't be decrypted.
func (c *Cloud) Doom(n int, code, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		c.doomed = append(c.doomed, reason{code, message})
	}
}

// Kill ends a machine from within the cloud. It returns an error when there is none.
func (c *Cloud) Kill(id, code, message string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(id)
	if err == nil {
		c.terminate(m, c.cfg.Now(), reason{code, message})
	}
	return err
}

// Stop stops a machine as somebody would by hand. It returns an error when there is
// none.
func (c *Cloud) Stop(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(id)
	if err == nil {
		const code = "Client.UserInitiatedShutdown"
		c.stop(m, c.cfg.Now(), reason{code, code + ": User initiated shutdown"})
	}
	return err
}

func (c *Cloud) find(id string) (*machine, error) {
	m, ok := c.byID[id]
	if !ok {
		return nil, fmt.Errorf("no machine %.80q", id)
	}
	return m, nil
}

// Plant makes a machine that nobody asked for by a call, and returns its id. It has
// the first image and instance type that fit each other, and an address of its own.
func (c *Cloud) Plant(subnet string, tags map[string]string, protected bool) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := launch{
		subnet: subnet, nics: []nic{{subnet: subnet, ends: true}}, tags: maps.Clone(tags), tokens: "optional", protected: protected,
	}
	if len(c.cfg.InstanceTypes) > 0 {
		l.kind = c.cfg.InstanceTypes[0].Name
	}
	if len(c.cfg.Images) > 0 {
		l.image = c.cfg.Images[0]
	}
	addresses, err := placeAll(c, l, c.cfg.Now())
	if err != nil {
		addresses = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(len(c.machines))})} // of no subnet
	}
	return c.add(l, addresses, "").id
}

// Boot makes a machine with userdata that nobody asked for by a call, and returns its id.
func (c *Cloud) Boot(subnet string, userdata []byte) string {
	id := c.Plant(subnet, nil, false)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byID[id].launch.userdata = userdata
	return id
}
