// Package retry implements back-off: how long to wait after consecutive failures, and a wait
// that ends with a context.
//
// Delay is the longest wait; Draw draws the wait from all shorter ones, so that clients that
// fail together do not retry together ("full jitter"). The caller resets the failure count at
// the first success, so that success is never slowed down.
package retry

import (
	"context"
	"time"
)

// Backoff is a series of delays that double from First up to Limit. First must be positive.
type Backoff struct {
	First, Limit time.Duration
	Least        time.Duration // the shortest wait that Draw returns, at most Limit
}

// Delay returns the longest wait after the n-th consecutive failure, counted from 1.
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

// Draw returns a wait after the n-th consecutive failure, in [Least, Delay(n)); random returns
// numbers in [0, 1).
func (b Backoff) Draw(n int, random func() float64) time.Duration {
	spread := max(0, b.Delay(n)-b.Least)
	return b.Least + time.Duration(random()*float64(spread))
}

// Wait waits for d, or until ctx ends, and then returns its cause.
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
