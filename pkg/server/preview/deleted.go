package preview

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// DeletedRecords are the records of deleted instances, which are kept for a time.
type DeletedRecords struct {
	Kept          int   // now
	Expected      int64 // in the long run, at the present rate of deletions
	ExpectedBytes int64 // about what these take of the leader's memory
}

// bytesPerDeleted is what one record takes, as measured with 90,000 of them.
const bytesPerDeleted = 2600

// rateWindow bounds the time over which deletions are counted.
const rateWindow = 24 * time.Hour

// Deleted returns what a retention keeps, at the rate at which instances were deleted lately: in the last
// day, or during the retention that there was so far, since nothing older is known.
func Deleted(all []fleet.Instance, now time.Time, soFar, retention time.Duration) (d DeletedRecords) {
	window, lately := min(soFar, rateWindow), int64(0)
	for _, i := range all {
		if i.Phase != fleet.Deleted {
			continue
		}
		d.Kept++
		if i.DeletedAt != nil && now.Sub(*i.DeletedAt) <= window {
			lately++
		}
	}
	d.Expected = int64(float64(lately) * float64(retention) / float64(window))
	d.ExpectedBytes = d.Expected * bytesPerDeleted
	return d
}
