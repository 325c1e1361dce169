package paced

import (
	"context"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// singly is the maximum number of VMs sent in calls of their own, concurrently, so that a slow
// call does not delay the others. More VMs are batched.
const singly = 10

// batches batches reads or deletes of single VMs. While few calls are in flight each VM has its
// own call; VMs added meanwhile wait and are sent in batches, so that a thousand VMs cost ten
// calls. The same applies to calls that wait for their turn while the provider is throttling.
// Safe for concurrent use.
type batches[T any] struct {
	send func(context.Context, []provider.Ref) []T // makes one call; returns an answer for each VM
	run  func(func())                              // starts a worker

	turns *turns // rate limit while the provider is throttling
	line  line

	mu      sync.Mutex
	limit   int // maximum calls in flight
	under   int
	inLine  bool // one of the calls in flight waits for its turn
	waiting []question[T]
}

type question[T any] struct {
	ref      provider.Ref
	answered func(T)
}

// add enqueues VMs. answered is called once for each, by a worker, with its index in refs.
func (c *batches[T]) add(ctx context.Context, refs []provider.Ref, answered func(n int, got T)) {
	c.mu.Lock()
	for n, ref := range refs {
		c.waiting = append(c.waiting, question[T]{ref: ref, answered: func(got T) { answered(n, got) }})
	}
	c.mu.Unlock()
	c.next(ctx)
}

// all enqueues VMs and waits for all answers.
func (c *batches[T]) all(ctx context.Context, refs ...provider.Ref) []T {
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

func (c *batches[T]) resize(limit int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = limit
}

// next starts as many calls as the limit allows.
func (c *batches[T]) next(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.under < c.limit && len(c.waiting) > 0 && !c.inLine {
		c.under++
		if _, ok := c.turns.acquire(time.Now()); !ok {
			c.inLine = true
			c.run(func() { c.carryOut(ctx, c.await(ctx)) })
			return
		}
		batch := c.batch()
		c.run(func() { c.carryOut(ctx, batch) })
	}
}

// await waits for a turn and returns the batch of the call. If ctx ends first, the call returns
// its error.
func (c *batches[T]) await(ctx context.Context) []question[T] {
	_ = c.turns.wait(ctx, c.line, longest)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inLine = false
	return c.batch()
}

// batch removes the VMs of the next call from the queue. The caller holds the lock.
func (c *batches[T]) batch() []question[T] {
	n := 1
	if len(c.waiting) > singly || c.turns.rate() > 0 {
		n = min(len(c.waiting), provider.MaxBatch)
	}
	batch := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	return batch
}

func (c *batches[T]) carryOut(ctx context.Context, batch []question[T]) {
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
