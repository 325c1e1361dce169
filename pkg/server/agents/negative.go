package agents

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/ledger"
)

const (
	// absentFor is how long a record counts as absent without another read.
	absentFor = time.Minute
	// maxAbsent bounds the memory: about a megabyte.
	maxAbsent = 1 << 13
	// absentTimeout bounds a read. A read continues for other callers when its first caller
	// leaves.
	absentTimeout = 10 * time.Second
)

// negativeCache remembers which records are absent from the store, so that calls of an agent
// whose instance was pruned do not each cost a request. A certificate is issued only after its
// instance's record was written, and IDs are never reused, so an absent record stays absent;
// entries expire only because a store may be restored by hand. Safe for concurrent use.
type negativeCache struct {
	now   func() time.Time
	reads singleflight.Group

	mu     sync.Mutex
	until  map[recordKey]time.Time
	tidyAt time.Time // when expired entries are dropped next
}

type recordKey struct {
	tenant string
	id     fleet.InstanceID
}

func newNegativeCache(now func() time.Time) *negativeCache {
	return &negativeCache{now: now, until: make(map[recordKey]time.Time)}
}

// fetch reads a record unless it is known to be absent; concurrent callers share one read. The
// error for an absent record is ledger.ErrNotFound.
func (c *negativeCache) fetch(ctx context.Context, tenant string, id fleet.InstanceID,
	read func(context.Context, string, fleet.InstanceID) (fleet.Instance, error),
) (fleet.Instance, error) {
	key := recordKey{tenant, id}
	if c.has(key) {
		return fleet.Instance{}, ledger.ErrNotFound
	}
	result := c.reads.DoChan(tenant+"/"+string(id), func() (any, error) {
		shared, cancel := context.WithTimeout(context.WithoutCancel(ctx), absentTimeout)
		defer cancel()
		i, err := read(shared, tenant, id)
		if errors.Is(err, ledger.ErrNotFound) {
			c.add(key)
		}
		return i, err
	})
	select {
	case r := <-result:
		i, _ := r.Val.(fleet.Instance)
		return i, r.Err
	case <-ctx.Done():
		return fleet.Instance{}, ctx.Err()
	}
}

func (c *negativeCache) has(key recordKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now().Before(c.until[key])
}

// add evicts expired entries, or else any entry, to make room.
func (c *negativeCache) add(key recordKey) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.until) >= maxAbsent || !now.Before(c.tidyAt) {
		maps.DeleteFunc(c.until, func(_ recordKey, until time.Time) bool { return !now.Before(until) })
		c.tidyAt = now.Add(absentFor)
	}
	for other := range c.until {
		if len(c.until) < maxAbsent {
			break
		}
		delete(c.until, other)
	}
	c.until[key] = now.Add(absentFor)
}
