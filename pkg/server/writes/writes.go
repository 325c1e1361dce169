// Package writes is what a term's parts share to write to the store: it bounds each write, lets
// none begin after the term, and says in kinds of package rpc what went wrong.
package writes

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/server/election"
)

// writeGrace is how long a running store write may continue after its term or its caller has
// ended. Without it, every handover would leave several writes of unknown outcome.
const writeGrace = 200 * time.Millisecond

// Writes tracks the running store writes of a term. None starts after the term has ended, and
// leadership is released only when all have finished.
//
// A write that the store neither accepts nor refuses is abandoned after limit. Its outcome is
// then unknown, which every writer handles; a hanging write would block others without any
// error.
type Writes struct {
	term  context.Context
	limit func() time.Duration

	mu    sync.Mutex
	over  bool
	under sync.WaitGroup
}

// New returns the writes of a term. limit returns how long one write may take.
func New(term context.Context, limit func() time.Duration) *Writes {
	return &Writes{term: term, limit: limit}
}

// Do runs a write. Its context outlives ctx and the term by at most writeGrace.
func (w *Writes) Do(ctx context.Context, write func(context.Context) error) error {
	if err := w.start(ctx); err != nil {
		return err
	}
	defer w.under.Done()
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.limit())
	defer cancel()
	expire := func() { time.AfterFunc(writeGrace, cancel) }
	defer context.AfterFunc(ctx, expire)()
	defer context.AfterFunc(w.term, expire)() //nolint:contextcheck // the term's end ends a write, as its caller's does
	return write(longer)
}

// During is do for a write with a result.
func During[T any](ctx context.Context, w *Writes, write func(context.Context) (T, error)) (out T, err error) {
	err = w.Do(ctx, func(ctx context.Context) error {
		out, err = write(ctx)
		return err
	})
	return out, err
}

func (w *Writes) start(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.over || w.term.Err() != nil:
		return fmt.Errorf("start a write: %w", election.ErrNotLeader)
	case ctx.Err() != nil:
		return fmt.Errorf("start a write: %w", context.Cause(ctx))
	}
	w.under.Add(1)
	return nil
}

// End blocks further writes and returns when those running have finished. The term must be over.
func (w *Writes) End() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.under.Wait()
}
