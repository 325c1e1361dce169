package election

import (
	"context"
	"errors"
	"fmt"
)

var (
	// ErrNotLeader means that the term is over. Nothing may be started or acknowledged for it.
	ErrNotLeader = errors.New("not the leader")

	// ErrUnfenced means that the term goes on, but its renewals take longer than the fence
	// window, so nothing may be started or acknowledged now. The store is too slow; a retry
	// may succeed.
	ErrUnfenced = errors.New("election store too slow to act")
)

// maxLateRenewals is how many renewals in a row may arrive too late before Check returns
// ErrUnfenced.
const maxLateRenewals = 3

// Term is one term of leadership. Safe for concurrent use; callers that need a renewal share the
// one in flight.
type Term struct {
	elector *Elector
	epoch   uint64
	ctx     context.Context // ends with the term
}

// Epoch returns the term's epoch, which exceeds that of every earlier term on any server.
func (t *Term) Epoch() uint64 { return t.epoch }

// Check returns nil if an action may start now: a renewal was sent less than the fence window
// ago and has landed. If there is none it renews first, for as long as the term and ctx last.
// Otherwise it returns ErrNotLeader or ErrUnfenced, or the cause of ctx's end.
//
// A Check covers only what starts right after it: call it before each step of a multi-step
// action, and before each retry.
func (t *Term) Check(ctx context.Context) error {
	s := t.elector.checkFence(t.epoch, false)
	if s.fenced {
		t.elector.needs.met(NeedFence)
		return nil
	}
	try := t.elector.needs.Start(NeedFence)
	err := t.await(ctx, s)
	try.End(err)
	return err
}

// await is Check after a first state, s, without a fence.
func (t *Term) await(ctx context.Context, s standing) error {
	for late := 0; ; {
		switch {
		case s.fenced:
			return nil
		case !s.inTerm:
			return t.over()
		case late == maxLateRenewals:
			return ErrUnfenced
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("await renewal: %w", context.Cause(ctx))
		case <-s.changed:
		}
		next := t.elector.checkFence(t.epoch, false)
		if next.sent != s.sent {
			late++
		}
		s = next
	}
}

// Act runs a durable write and, concurrently, a renewal if one is needed soon, and checks the
// fence once both have returned. Nil means that the write is durable and may be acted on or
// acknowledged now. An error of write is returned unchanged; after ErrNotLeader or ErrUnfenced
// the write may well be durable, but must not be acted on here.
func (t *Term) Act(ctx context.Context, write func(context.Context) error) error {
	if s := t.elector.checkFence(t.epoch, true); !s.inTerm {
		return t.over()
	}
	if err := write(ctx); err != nil {
		return err
	}
	return t.Check(ctx)
}

// Lost reports whether the term has ended because the lease did, or because of another server, and
// not because this server gave up the lead.
func (t *Term) Lost() bool {
	cause := context.Cause(t.ctx)
	return errors.Is(cause, errLeaseOver) || errors.Is(cause, errSuperseded) || errors.Is(cause, errRecordGone)
}

func (t *Term) over() error {
	if cause := context.Cause(t.ctx); cause != nil {
		return fmt.Errorf("%w: %w", ErrNotLeader, cause)
	}
	return ErrNotLeader
}
