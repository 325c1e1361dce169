package images

// Known returns the ids that can be used now, by name.
func (c *Cache) Known() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := make(map[string]string, len(c.entries))
	for name, e := range c.entries {
		if id := e.usable(); id != "" {
			known[name] = id
		}
	}
	return known
}
