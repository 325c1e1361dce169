//go:build !stepclock

package shardtest

import "time"

// stepClock reports that no clock was moved: package time is as it is.
func stepClock(time.Duration) bool { return false }
