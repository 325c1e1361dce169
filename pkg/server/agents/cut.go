package agents

import (
	"sync"

	"github.com/nstance/nstance/pkg/fleet"
)

// cuts ends all streams of an instance at once, of every kind.
type cuts struct {
	mu   sync.Mutex
	open map[fleet.InstanceID]*cut
}

// cut is shared by the open streams of one instance.
type cut struct {
	done    chan struct{}
	streams int
}

func (c *cuts) join(id fleet.InstanceID) *cut {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.open[id]
	if one == nil {
		one = &cut{done: make(chan struct{})}
		c.open[id] = one
	}
	one.streams++
	return one
}

func (c *cuts) leave(id fleet.InstanceID, one *cut) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.streams--; one.streams == 0 && c.open[id] == one {
		delete(c.open, id)
	}
}

func (c *cuts) cut(id fleet.InstanceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.open[id]; one != nil {
		close(one.done)
		delete(c.open, id)
	}
}
