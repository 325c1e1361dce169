package agents

import "github.com/nstance/nstance/pkg/fleet"

// Streams returns the number of instances with open streams.
func (s *Service) Streams() int { return s.cuts.size() }

// Connected reports whether an instance has an open stream. Safe for concurrent use.
func (s *Service) Connected(id fleet.InstanceID) bool { return s.cuts.has(id) }

func (c *cuts) has(id fleet.InstanceID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[id] != nil
}

func (c *cuts) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}
