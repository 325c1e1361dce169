package shardgroup

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// perShard is how many calls one shard is asked at a time. A shard writes changes that
// come together together, so a few would cost it more writes; it takes 100 of one
// connection, and others need some.
const perShard = 90

// calls are made beside the reconciler's workers, so that no shard that takes its time
// can hold one. When a call has ended, its request is reconciled again, and finds what
// came of it. There is at most one call of a request. Safe for concurrent use.
type calls struct {
	limit int

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // in which the calls are made: that of the controller
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	running map[string]int                 // by shard
	waiting map[string][]reconcile.Request // by shard, for a place
	of      map[reconcile.Request]*call
}

// call is under way, or has ended and nobody has looked yet.
type call struct {
	ended   bool
	outcome outcome
}

func newCalls(limit int) *calls {
	return &calls{
		limit: limit, running: map[string]int{}, waiting: map[string][]reconcile.Request{}, of: map[reconcile.Request]*call{},
	}
}

// begin is the source that ended calls feed.
func (c *calls) begin(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ctx, c.queue = ctx, queue
	return nil
}

// take returns what came of a request's call, once; nil: there was none, or it is under
// way.
func (c *calls) take(req reconcile.Request) (o *outcome, underWay bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch found := c.of[req]; {
	case found == nil:
		return nil, false
	case !found.ended:
		return nil, true
	default:
		delete(c.of, req)
		return &found.outcome, false
	}
}

// many reports whether a shard is asked for more than a few changes at a time.
func (c *calls) many(shard string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[shard]+len(c.waiting[shard]) > few
}

// start begins a request's call, which must have none, and reports whether it did. Without
// a free place the request is reconciled again as soon as there may be one: what it wants
// may be different then.
func (c *calls) start(req reconcile.Request, shard string, do func(context.Context) outcome) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[shard] >= c.limit {
		c.waiting[shard] = append(c.waiting[shard], req)
		return false
	}
	c.running[shard]++
	made := &call{}
	c.of[req] = made
	ctx, queue := c.ctx, c.queue
	go func() {
		o := do(ctx)
		c.mu.Lock()
		made.ended, made.outcome = true, o
		if c.running[shard]--; c.running[shard] == 0 {
			delete(c.running, shard)
		}
		c.mu.Unlock()
		queue.Add(req)
		c.wake(shard)
	}()
	return true
}

// wake has those reconciled again who can have a place now. Every reconciliation of a
// shard's group ends with it, because one that was woken may have had no need of its
// place after all.
func (c *calls) wake(shard string) {
	for _, req := range c.next(shard) {
		c.queue.Add(req)
	}
}

// next takes those out of the line for whom there is a place, once most of the places are
// free: those of a shard's next write are to come together, too.
func (c *calls) next(shard string) []reconcile.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.waiting[shard]
	n := min(c.limit-c.running[shard], len(waiting))
	if n < min(c.limit*3/4, len(waiting)) {
		return nil
	}
	if c.waiting[shard] = waiting[n:]; n == len(waiting) {
		delete(c.waiting, shard)
	}
	return waiting[:n]
}
