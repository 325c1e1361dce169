package election

import (
	"context"
	"errors"
	"fmt"
)

var (
	// ErrNotLeader means that the term is over. Nothing may be started or
	// acknowledged in its name any more.
	ErrNotLeader = errors.New("not the leader")

	// ErrUnfenced means that the term goes on, but its renewals come back later
	// than the fence window allows, so nothing may be started or acknowledged now.
	// The store is too slow; trying again later may succeed.
	ErrUnfenced = errors.New("election store too slow to act")
)

// maxLateRenewals is how many renewals in a row may come back too late to act on
// until the caller is told.
const maxLateRenewals = 3

// Term is one time of leading. Its methods are safe for concurrent use; those
// that need a renewal share the one under way.
type Term struct {
	elector *Elector
	epoch   uint64
	ctx     context.Context // ends with the term
}

// Epoch is greater than that of every term before, on any server.
func (t *Term) Epoch() uint64 { return t.epoch }

// Check returns nil when an act may start now: a renewal was sent less than the
// fence window ago and has landed. If there is none it renews first, trying for
// as long as the term and ctx last. Otherwise it returns ErrNotLeader or
// ErrUnfenced, or the cause of ctx's end.
//
// A Check permits what starts right after it, not what starts later: call it
// before each step of an act that has several, and before each retry.
func (t *Term) Check(ctx context.Context) error {
	s := t.elector.checkFence(t.epoch, false)
	if s.fenced {
		t.elector.needs.met(NeedFence)
		return nil
	}
	try := t.elector.needs.Begin(NeedFence)
	err := t.await(ctx, s)
	try.End(err)
	return err
}

// await is Check once a first look, which is s, did not find a fence.
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

// Act runs a durable write and, beside it, a renewal if one is needed soon, and
// checks the fence when both have returned. Nil means: written, and what depends
// on it may start, or be acknowledged, now. An error of write is returned as it
// is; ErrNotLeader or ErrUnfenced after it mean that the write may well be
// durable, and that nothing may follow from it here.
func (t *Term) Act(ctx context.Context, write func(context.Context) error) error {
	if s := t.elector.checkFence(t.epoch, true); !s.inTerm {
		return t.over()
	}
	if err := write(ctx); err != nil {
		return err
	}
	return t.Check(ctx)
}

func (t *Term) over() error {
	if cause := context.Cause(t.ctx); cause != nil {
		return fmt.Errorf("%w: %w", ErrNotLeader, cause)
	}
	return ErrNotLeader
}
