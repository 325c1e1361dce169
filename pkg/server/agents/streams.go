package agents

// Streams returns the number of instances with open streams.
func (s *Service) Streams() int { return s.cuts.size() }

func (c *cuts) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}
