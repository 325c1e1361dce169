package reconcile

import (
	"context"
	"sync"

	"github.com/nstance/nstance/pkg/provider"
)

// singly is how many VMs are named one by one at most, in calls beside each
// other, so that a slow one holds up no other. More go together.
const singly = 10

// calls sends questions or orders about single VMs to the provider. While no
// more than a few calls are under way each VM has its own; what comes meanwhile
// waits, and goes in batches, so that a thousand VMs cost ten calls. Safe for
// concurrent use.
type calls[T any] struct {
	send func(context.Context, []provider.Ref) []T // one call; an answer for each VM
	run  func(func())                              // starts a worker

	mu      sync.Mutex
	limit   int // calls under way at one time
	under   int
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
	for c.under < c.limit && len(c.waiting) > 0 {
		n := 1
		if len(c.waiting) > singly {
			n = min(len(c.waiting), provider.MaxBatch)
		}
		batch := c.waiting[:n:n]
		c.waiting = c.waiting[n:]
		c.under++
		c.run(func() { c.carryOut(ctx, batch) })
	}
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
