package paced

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// longest is an unlimited wait.
const longest = time.Duration(math.MaxInt64)

// Throttling means that the provider is throttling calls of one kind.
type Throttling struct {
	Calls string // such as "creates and deletes"
	Since time.Time
	Err   error // the provider's first error
}

// patience is how long a create waits for its turn. After that the create is decided again, as
// it may no longer be wanted.
const patience = 30 * time.Second

// turns is the queue of one kind of calls that wait for their turn while the provider is
// throttling. Safe for concurrent use.
type turns struct {
	what  string           // kind of calls, for messages
	began func(Throttling) // called when throttling begins

	mu    sync.Mutex
	pace  pace
	since time.Time // when it began
	first error     // the first throttling error
	lines [2][]chan struct{}
	timer *time.Timer // grants the next turn; nil: no waiter

	claimed    bool // a claimer waits for a turn
	kept       bool // a turn is reserved for the claimer
	behindLast bool // the last shared turn went to the line behind, not to a claimer
}

// line is a queue of waiting calls.
type line int

const (
	inFront line = iota // ahead of all others
	behind
)

// acquire takes a turn if it is due and no call waits for it; otherwise it returns when the
// next one is due.
func (t *turns) acquire(now time.Time) (at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.pace.waitedAt = now
		return now.Add(t.pace.interval()), false
	}
	return t.pace.turn(now)
}

// claim takes a turn if it is due, for a caller that does not queue but claims again when the
// next one is due, which it returns otherwise. Claimers and the line behind alternate, so that
// neither starves.
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

// wait waits for a turn, up to most. Without one it returns provider.ErrThrottled or the
// context's error.
func (t *turns) wait(ctx context.Context, where line, most time.Duration) error {
	if _, ok := t.acquire(time.Now()); ok {
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
			return fmt.Errorf("%w: no turn within %s", provider.ErrThrottled, most)
		}
		return nil // granted meanwhile
	case <-ctx.Done():
		t.leave(where, granted)
		return ctx.Err()
	}
}

// leave leaves a line. It returns false if the turn was already granted.
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

// serve grants the turns that are due and sets the timer for the next. The caller holds the
// lock.
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

// grant grants a due turn. A line must not be empty.
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

// ended records the result of a call sent at the given time.
func (t *turns) ended(sent time.Time, err error) {
	t.mu.Lock()
	now, began := time.Now(), false
	switch {
	case errors.Is(err, provider.ErrThrottled):
		if began = t.pace.refused(sent, now); began {
			t.since, t.first = now, err
		}
	case err == nil, provider.Definite(err), errors.Is(err, provider.ErrNotFound):
		t.pace.accepted(sent, now)
	default: // a timeout says nothing about the accepted rate
	}
	if t.timer != nil {
		t.serve() // the time of the next turn has changed
	}
	t.mu.Unlock()
	if now, is := t.throttling(); began && is {
		t.began(now)
	}
}

// rate returns the current rate in calls per second; 0: unlimited.
func (t *turns) rate() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pace.rate
}

// limit sets the maximum rate while the provider is throttling; 0: none.
func (t *turns) limit(perSecond float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pace.ceiling = perSecond
	t.pace.rate = t.pace.bounded(t.pace.rate)
}

// calm ends throttling if it is over, and reports whether it did; otherwise it returns when it
// may be; zero if there is none.
func (t *turns) calm(now time.Time) (again time.Time, over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	over = t.pace.end(now)
	if over {
		t.serve()
	}
	return t.pace.over(), over
}

// throttling returns the current throttling, unchanged for as long as it lasts.
func (t *turns) throttling() (is Throttling, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Throttling{Calls: t.what, Since: t.since, Err: t.first}, t.pace.rate > 0
}
