package awstest

import (
	"fmt"
	"maps"
	"net/netip"
)

// SetCapacity limits the number of machines of an instance type in a subnet. Without a limit any
// number fits.
func (c *Cloud) SetCapacity(instanceType, subnet string, machines int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.capacity[pool{instanceType, subnet}] = machines
}

// FailBoots makes the next n launched machines terminate instead of entering running, as those do
// whose volume can't be decrypted.
func (c *Cloud) FailBoots(n int, code, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		c.failedBoots = append(c.failedBoots, reason{code, message})
	}
}

// Kill terminates a machine as a failure of the cloud. It returns an error if the machine is
// unknown.
func (c *Cloud) Kill(id, code, message string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(id)
	if err == nil {
		c.terminate(m, c.cfg.Now(), reason{code, message})
	}
	return err
}

// Stop stops a machine, as the console does. It returns an error if the machine is unknown.
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

// AddMachine adds a machine that no call has launched, and returns its id. It has the first image,
// the first instance type, and a free address.
func (c *Cloud) AddMachine(subnet string, tags map[string]string, protected bool) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := launch{
		subnet: subnet, nics: []nic{{subnet: subnet, deleteOnTermination: true}},
		tags: maps.Clone(tags), tokens: "optional", protected: protected,
	}
	if len(c.cfg.InstanceTypes) > 0 {
		l.kind = c.cfg.InstanceTypes[0].Name
	}
	if len(c.cfg.Images) > 0 {
		l.image = c.cfg.Images[0]
	}
	addresses, err := allocateAddresses(c, l, c.cfg.Now())
	if err != nil {
		addresses = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(len(c.machines))})} // of no subnet
	}
	return c.add(l, addresses, "").id
}

// BootMachine adds a machine with userdata that no call has launched, and returns its id.
func (c *Cloud) BootMachine(subnet string, userdata []byte) string {
	id := c.AddMachine(subnet, nil, false)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byID[id].launch.userdata = userdata
	return id
}
