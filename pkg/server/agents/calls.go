package agents

import (
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// calls remembers when agents without a record last called, of maxAbsent at most. Safe for
// concurrent use.
type calls struct {
	now func() time.Time

	mu sync.Mutex
	at map[fleet.InstanceID]time.Time
}

func newCalls(now func() time.Time) *calls {
	return &calls{now: now, at: make(map[fleet.InstanceID]time.Time)}
}

// add evicts any other to make room.
func (c *calls) add(id fleet.InstanceID) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at[id] = now
	for other := range c.at {
		if len(c.at) <= maxAbsent {
			break
		}
		if other != id {
			delete(c.at, other)
		}
	}
}

func (c *calls) last(id fleet.InstanceID) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at[id]
}
