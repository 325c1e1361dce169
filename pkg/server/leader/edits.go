package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/operators"
)

// This file is how edits of one tenant's groups come to one write: those that wait
// while one is under way are written together, by the next.

// edit is one caller's change of a group, or of nothing.
type edit struct {
	key fleet.GroupKey // without a name: all groups of the tenant
	// change must be pure: it runs again when another write came first. nil changes
	// nothing, and only has it made sure what the store holds.
	change func(now state) (config.Dynamic, error)
	asked  bool // by a caller, who acts on the answer; the group is to be acted on then

	ctx   context.Context //nolint:containedctx // the caller's
	stage atomic.Int32    // of the stages below
	done  chan error      // has room for the one answer
}

// The stages of an edit. Whoever moves it out of waits has it.
const (
	waits int32 = iota
	taken       // by the write that makes it durable
	left        // by a caller who did not wait
)

// state is what an edit is applied to: its group, and what is kept of it, with the
// edits before it.
type state struct {
	entries config.Dynamic
	group   fleet.Group
	defined bool
}

// matches refuses the change of a group that is not as its caller believes.
func (s state) matches(key fleet.GroupKey, etag *string) error {
	if etag == nil {
		return nil
	}
	now := ""
	if s.defined {
		now = operators.ETag(s.group)
	}
	switch {
	case *etag == now:
		return nil
	case !s.defined:
		return rpc.Conflict.Errorf("if_etag: %.80q, but there is no group %s: read again", *etag, key.Name)
	case *etag == "":
		return rpc.Conflict.Errorf("if_etag: empty, but there is a group %s, with etag %q: read again", key.Name, now)
	default:
		return rpc.Conflict.Errorf("if_etag: %.80q, but group %s has etag %q: read again", *etag, key.Name, now)
	}
}

// editQueue are the edits that wait for the write under way.
type editQueue struct {
	mu      sync.Mutex
	edits   []*edit
	written bool // somebody is on it
}

// add says whether the caller has to see to it that the queue is written.
func (q *editQueue) add(e *edit) (idle bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.edits = append(q.edits, e)
	idle, q.written = !q.written, true
	return idle
}

// take returns all that wait and have not been given up; none ends the writing.
func (q *editQueue) take() (batch []*edit) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.edits {
		if e.stage.CompareAndSwap(waits, taken) {
			batch = append(batch, e)
		}
	}
	q.edits, q.written = nil, len(batch) > 0
	return batch
}

// edit changes dynamic groups, durably, while the term lasts.
func (g *groups) edit(ctx context.Context, e *edit) error {
	if g.brokenForAll() != nil {
		if err := g.reload(ctx); err != nil {
			return err
		}
		if err := g.brokenForAll(); err != nil {
			return rpc.Precondition.Errorf("%w", err)
		}
	}
	e.ctx, e.done = ctx, make(chan error, 1)
	t := g.of(e.key.Tenant)
	if t.queue.add(e) {
		go g.serve(t) //nolint:contextcheck // until there is nothing to write, for whoever waits then
	}
	return e.wait()
}

// wait returns the answer. A write that is under way gets a moment after its caller
// has left, as all have, and longer while others wait for it.
func (e *edit) wait() error {
	select {
	case err := <-e.done:
		return err
	case <-e.ctx.Done():
	}
	if e.stage.CompareAndSwap(waits, left) {
		return fmt.Errorf("wait for the edit before: %w", context.Cause(e.ctx))
	}
	select {
	case err := <-e.done:
		return err
	case <-time.After(writeGrace):
		return fmt.Errorf("%w: %w", object.ErrUnknown, context.Cause(e.ctx))
	}
}

// serve writes what waits, until nothing does.
func (g *groups) serve(t *tenant) {
	for {
		err := g.turns.Acquire(g.term, 1)
		batch := t.queue.take()
		switch {
		case err != nil:
			answer(batch, kind(ErrNoTerm()))
		case len(batch) > 0:
			g.write(t, batch)
		}
		if err == nil {
			g.turns.Release(1)
		}
		switch {
		case len(batch) == 0:
			return
		case len(batch) > 1:
			_ = retry.Wait(g.term, gather)
		}
	}
}

// gather is how long the next write waits after one of several edits: callers who were
// answered together often ask for more together.
const gather = 5 * time.Millisecond

func answer(edits []*edit, err error) {
	for _, e := range edits {
		e.done <- err
	}
}

// write makes a batch durable. It goes on as long as any of the callers waits.
func (g *groups) write(t *tenant, batch []*edit) {
	ctx, leave := context.WithCancelCause(context.Background())
	defer leave(nil)
	var waiting atomic.Int32
	waiting.Store(int32(len(batch)))
	for _, e := range batch {
		defer context.AfterFunc(e.ctx, func() {
			if waiting.Add(-1) == 0 {
				leave(context.Cause(e.ctx))
			}
		})()
	}
	began := false
	err := g.records.writes.do(ctx, func(ctx context.Context) error {
		began = true
		g.commit(ctx, t, batch)
		return nil
	})
	if !began {
		answer(batch, err)
	}
}

// unreadableEdit is the answer to an edit of groups that can't be read.
func unreadableEdit(err error) error { return rpc.Precondition.Errorf("%w", err) }

// refusedTooLarge is the answer to an edit that leaves no room.
func refusedTooLarge(err error) error { return rpc.Exhausted.Errorf("%w", err) }

// conflicting reports whether a write came too late, and another one is worth it.
func conflicting(err error, tries int) bool {
	return errors.Is(err, object.ErrConflict) && tries < maxConflicts
}
