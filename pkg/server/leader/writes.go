package leader

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/server/election"
)

// writeGrace is how long a store write that is under way may go on after its
// term, or the caller who wanted it, is gone. It keeps a handover from leaving
// half a dozen writes behind of which nobody knows whether they landed.
const writeGrace = 200 * time.Millisecond

// writes are the store writes under way in one term's name. None begins after
// the term, and the lead is released only when all have ended.
//
// A write that the store neither takes nor refuses is given up after limit: its
// outcome is unknown then, which everybody who writes knows to deal with, while
// one that hangs would hold a place that others need and tell nobody.
type writes struct {
	term  context.Context
	limit func() time.Duration

	mu    sync.Mutex
	over  bool
	under sync.WaitGroup
}

func newWrites(term context.Context, limit func() time.Duration) *writes {
	return &writes{term: term, limit: limit}
}

// do runs a write. Its context outlives ctx and the term by writeGrace, no more.
func (w *writes) do(ctx context.Context, write func(context.Context) error) error {
	if err := w.begin(ctx); err != nil {
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

// during is do, of a write that has a result.
func during[T any](ctx context.Context, w *writes, write func(context.Context) (T, error)) (out T, err error) {
	err = w.do(ctx, func(ctx context.Context) error {
		out, err = write(ctx)
		return err
	})
	return out, err
}

func (w *writes) begin(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.over || w.term.Err() != nil:
		return fmt.Errorf("begin a write: %w", election.ErrNotLeader)
	case ctx.Err() != nil:
		return fmt.Errorf("begin a write: %w", context.Cause(ctx))
	}
	w.under.Add(1)
	return nil
}

// end lets no further write begin and returns when those under way have ended.
// The term must be over.
func (w *writes) end() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.under.Wait()
}
