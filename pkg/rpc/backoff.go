package rpc

import "time"

// The shortest and the longest time that a client waits before it tries again.
const (
	MinBackoff = 200 * time.Millisecond
	MaxBackoff = 10 * time.Second
)

// Backoff is how long to wait before the next attempt, when attempt others
// (0, 1, …) failed before it. It is spread evenly from MinBackoff to a bound that
// starts at one second, doubles, and ends at MaxBackoff: even the first wait
// keeps the clients of a restarted server from returning at the same moment.
// most lowers that end for a client that has reason to hurry. random yields
// numbers from [0, 1).
func Backoff(attempt int, most time.Duration, random func() float64) time.Duration {
	bound := MaxBackoff
	if attempt < 4 {
		bound = time.Second << max(attempt, 0)
	}
	bound = max(MinBackoff, min(bound, most))
	return MinBackoff + time.Duration(random()*float64(bound-MinBackoff))
}
