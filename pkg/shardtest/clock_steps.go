//go:build stepclock

package shardtest

import "time"

// stepClock moves the wall clock, and reports whether it did. time.StepClock is in the overlay that
// integration/ci/stepclock writes.
func stepClock(by time.Duration) bool {
	time.StepClock(by)
	return true
}
