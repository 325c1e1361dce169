package preview

import (
	"slices"
	"time"
)

// DeletedRecords are the records of deleted instances, which are kept for a time.
type DeletedRecords struct {
	Kept          int           // now
	Window        time.Duration // over which deletions were counted, up to now
	Expected      int64         // in the long run, at the rate of the window
	ExpectedBytes int64         // about what these take of the leader's memory
}

// bytesPerDeleted is what one record takes, as measured with 90,000 of them.
const bytesPerDeleted = 2600

// The bounds of the window. A burst of a few minutes says little about the long run.
const (
	shortestWindow = time.Hour
	longestWindow  = 24 * time.Hour
)

// Deleted returns what a retention keeps at the rate at which instances were deleted lately, by when each
// deleted instance that has a record was deleted, which is zero if that is unknown. The window is the age of
// the youngest nine tenths: before the oldest nothing is known, whatever the retention is now, as it may have
// been shorter or the shard is young, and a few, such as those that failed early, are kept for longer.
func Deleted(deletedAt []time.Time, now time.Time, soFar, retention time.Duration) DeletedRecords {
	d := DeletedRecords{Kept: len(deletedAt), Window: min(shortestWindow, soFar)}
	var ages []time.Duration
	for _, at := range deletedAt {
		if !at.IsZero() {
			ages = append(ages, now.Sub(at))
		}
	}
	slices.Sort(ages)
	if n := len(ages); n > 0 {
		d.Window = min(max(d.Window, ages[(n*9-1)/10]), longestWindow)
	}
	lately, _ := slices.BinarySearch(ages, d.Window+1)
	d.Expected = int64(float64(lately) * float64(retention) / float64(d.Window))
	d.ExpectedBytes = d.Expected * bytesPerDeleted
	return d
}
