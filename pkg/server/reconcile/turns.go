package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// ReasonThrottled is the reason of the problem that the provider refuses calls for
// their number.
const ReasonThrottled = "Throttled"

// patience is how long a create that is under way waits for its turn. One that is
// refused for longer is decided anew: it may not be wanted any more.
const patience = 30 * time.Second

// turns has calls of one kind wait for their turn while the provider throttles.
// Safe for concurrent use.
type turns struct {
	what  string              // the calls, for a person
	began func(fleet.Problem) // told when throttling begins

	mu    sync.Mutex
	pace  pace
	since time.Time // when it began
	words string    // the provider's, of the first refusal
	lines [2][]chan struct{}
	timer *time.Timer // grants the next turn; nil: nobody waits

	claimed    bool // a call that waits in no line wants a turn
	kept       bool // one has come, and is kept for it
	behindLast bool // the last of those that the line behind and such calls share was the line's
}

// line is where a call waits.
type line int

const (
	inFront line = iota // before all others
	behind
)

// take takes a turn if that has come and nobody waits for it; otherwise it returns
// when the next one comes.
func (t *turns) take(now time.Time) (at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.pace.waitedAt = now
		return now.Add(t.pace.interval()), false
	}
	return t.pace.turn(now)
}

// claim takes a turn if that has come, for a call that does not wait in a line and
// claims again when the next one comes, which it returns otherwise. The line behind
// and those that claim take turns, so that neither keeps the other waiting for ever.
func (t *turns) claim(now time.Time) (at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.claimed = !t.kept
		t.pace.waitedAt = now
		t.serve()
	}
	switch {
	case t.kept:
		t.kept = false
		return now, true
	case t.timer != nil:
		return t.pace.next(), false
	default:
		t.claimed = false
		return t.pace.turn(now)
	}
}

// wait waits for a turn, for most at most. Without one it fails with
// provider.ErrThrottled, or as the context says.
func (t *turns) wait(ctx context.Context, where line, most time.Duration) error {
	if _, ok := t.take(time.Now()); ok {
		return nil
	}
	granted := make(chan struct{})
	t.mu.Lock()
	t.lines[where] = append(t.lines[where], granted)
	t.serve()
	t.mu.Unlock()
	impatient := time.NewTimer(most)
	defer impatient.Stop()
	select {
	case <-granted:
		return nil
	case <-impatient.C:
		if t.leave(where, granted) {
			return fmt.Errorf("%w: no turn came in %s", provider.ErrThrottled, most)
		}
		return nil // it came meanwhile
	case <-ctx.Done():
		t.leave(where, granted)
		return ctx.Err()
	}
}

// leave leaves a line, and reports false when the turn had come already.
func (t *turns) leave(where line, granted chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := slices.Index(t.lines[where], granted)
	if n >= 0 {
		t.lines[where] = slices.Delete(t.lines[where], n, n+1)
		t.serve()
	}
	return n >= 0
}

// serve grants the turns that have come, and sets the timer for the next. The
// caller holds the lock.
func (t *turns) serve() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	for len(t.lines[inFront])+len(t.lines[behind]) > 0 {
		now := time.Now()
		at, ok := t.pace.turn(now)
		if !ok {
			t.timer = time.AfterFunc(at.Sub(now), func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				t.serve()
			})
			return
		}
		t.grant()
	}
}

// grant gives away a turn that has come, while somebody waits in a line.
func (t *turns) grant() {
	where := inFront
	if len(t.lines[inFront]) == 0 {
		if t.claimed && t.behindLast {
			t.claimed, t.kept, t.behindLast = false, true, false
			return
		}
		where, t.behindLast = behind, true
	}
	close(t.lines[where][0])
	t.lines[where] = t.lines[where][1:]
}

// ended takes over how a call ended that was sent at the given time.
func (t *turns) ended(sent time.Time, err error) {
	t.mu.Lock()
	now, began := time.Now(), false
	switch {
	case errors.Is(err, provider.ErrThrottled):
		if began = t.pace.refused(sent, now); began {
			t.since, t.words = now, words(err)
		}
	case err == nil, provider.Definite(err), errors.Is(err, provider.ErrNotFound):
		t.pace.accepted(sent, now)
	default: // no answer tells nothing of what is taken
	}
	if t.timer != nil {
		t.serve() // the next turn comes at another time now
	}
	t.mu.Unlock()
	if began {
		t.began(t.problem())
	}
}

// rate is how many calls a second may be sent; 0: any number.
func (t *turns) rate() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pace.rate
}

// limit sets the rate that is never exceeded while the provider throttles; 0: there
// is none.
func (t *turns) limit(perSecond float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pace.ceiling = perSecond
	t.pace.rate = t.pace.bounded(t.pace.rate)
}

// calm ends the throttling if it is over, and reports whether it did; otherwise it
// returns when it may be (zero: there is none).
func (t *turns) calm(now time.Time) (again time.Time, over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	over = t.pace.end(now)
	if over {
		t.serve()
	}
	return t.pace.over(), over
}

// problem says that the provider throttles, in the same words as long as it does;
// zero: it does not.
func (t *turns) problem() fleet.Problem {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pace.rate == 0 {
		return fleet.Problem{}
	}
	text := fmt.Sprintf("the provider refuses calls for their number, so %s are sent more slowly since %s: %s",
		t.what, t.since.UTC().Format(time.RFC3339), t.words)
	return fleet.Problem{At: t.since, Reason: ReasonThrottled, Message: text}
}
