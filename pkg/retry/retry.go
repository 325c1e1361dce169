// Package retry is the one way in which things are tried again: how long to wait
// after failures in a row, and a wait that a context ends.
//
// A Backoff says the longest wait; Draw takes the wait itself from all shorter
// ones, so that those who failed together don't come back together ("full
// jitter"). Whoever counts failures begins anew with the first success, so that
// what works is never slowed down by what did not.
package retry

import (
	"context"
	"time"
)

// Backoff is a series of delays that double from First up to Limit. First must be
// more than 0.
type Backoff struct {
	First, Limit time.Duration
	Least        time.Duration // the shortest wait that Draw returns, at most Limit
}

// Delay is the longest wait after the n-th failure in a row, counted from 1.
func (b Backoff) Delay(n int) time.Duration {
	d := b.First
	for ; n > 1 && d < b.Limit; n-- {
		if d > b.Limit/2 {
			return b.Limit
		}
		d *= 2
	}
	return min(d, b.Limit)
}

// Draw takes the wait after the n-th failure in a row from [Least, Delay(n)), with
// a random number from [0, 1).
func (b Backoff) Draw(n int, random func() float64) time.Duration {
	spread := max(0, b.Delay(n)-b.Least)
	return b.Least + time.Duration(random()*float64(spread))
}

// Wait waits for d, or until ctx ends, whose cause it then returns.
func Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
