package reconcile

import (
	"context"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// singly is how many VMs are named one by one at most, in calls beside each
// other, so that a slow one holds up no other. More go together.
const singly = 10

// calls sends questions or orders about single VMs to the provider. While no
// more than a few calls are under way each VM has its own; what comes meanwhile
// waits, and goes in batches, so that a thousand VMs cost ten calls. So does all
// that waits for its turn while the provider throttles. Safe for concurrent use.
type calls[T any] struct {
	send func(context.Context, []provider.Ref) []T // one call; an answer for each VM
	run  func(func())                              // starts a worker

	turns *turns // while the provider throttles, each call waits for one
	line  line

	mu      sync.Mutex
	limit   int // calls under way at one time
	under   int
	inLine  bool // one of those under way waits for its turn
	waiting []question[T]
}

type question[T any] struct {
	ref      provider.Ref
	answered func(T)
}

// add has VMs asked about. answered is called once for each, by a worker, with
// its place among refs.
func (c *calls[T]) add(ctx context.Context, refs []provider.Ref, answered func(n int, got T)) {
	c.mu.Lock()
	for n, ref := range refs {
		c.waiting = append(c.waiting, question[T]{ref: ref, answered: func(got T) { answered(n, got) }})
	}
	c.mu.Unlock()
	c.next(ctx)
}

// all asks about VMs and waits for every answer.
func (c *calls[T]) all(ctx context.Context, refs ...provider.Ref) []T {
	out := make([]T, len(refs))
	var open sync.WaitGroup
	open.Add(len(refs))
	c.add(ctx, refs, func(n int, got T) {
		out[n] = got
		open.Done()
	})
	open.Wait()
	return out
}

func (c *calls[T]) resize(limit int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = limit
}

// next begins the calls for which there is room.
func (c *calls[T]) next(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.under < c.limit && len(c.waiting) > 0 && !c.inLine {
		c.under++
		if _, ok := c.turns.take(time.Now()); !ok {
			c.inLine = true
			c.run(func() { c.carryOut(ctx, c.await(ctx)) })
			return
		}
		batch := c.batch()
		c.run(func() { c.carryOut(ctx, batch) })
	}
}

// await waits for a turn and returns what the call is about by then. When ctx ends
// first the call says so.
func (c *calls[T]) await(ctx context.Context) []question[T] {
	_ = c.turns.wait(ctx, c.line, longest)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inLine = false
	return c.batch()
}

// batch takes what the next call is about. The caller holds the lock.
func (c *calls[T]) batch() []question[T] {
	n := 1
	if len(c.waiting) > singly || c.turns.rate() > 0 {
		n = min(len(c.waiting), provider.MaxBatch)
	}
	batch := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	return batch
}

func (c *calls[T]) carryOut(ctx context.Context, batch []question[T]) {
	refs := make([]provider.Ref, len(batch))
	for n, q := range batch {
		refs[n] = q.ref
	}
	got := c.send(ctx, refs)
	c.mu.Lock()
	c.under--
	c.mu.Unlock()
	c.next(ctx)
	for n, q := range batch {
		q.answered(got[n])
	}
}
