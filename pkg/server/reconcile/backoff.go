package reconcile

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// ladder is a series of delays that double from first to limit.
type ladder struct{ first, limit time.Duration }

// createLadder is for a group whose creates fail; stepLadder for one step of one
// instance, which the store or the provider refused, and which costs little to try.
func createLadder() ladder { return ladder{first: time.Second, limit: 5 * time.Minute} }
func stepLadder() ladder   { return ladder{first: 500 * time.Millisecond, limit: 15 * time.Second} }

// delay is how long to wait after the n-th failure in a row, counted from 1.
func (b ladder) delay(n int) time.Duration {
	d := b.first
	for ; n > 1 && d < b.limit; n-- {
		d *= 2
	}
	return min(d, b.limit)
}

// backoff holds back the creates of one group after failures.
type backoff struct {
	failures int
	since    time.Time // the last failure that counted
	until    time.Time
	infra    string // the group's hash when it failed: a change starts afresh
}

// createFailed counts a failed create that began at began. Creates that were
// under way together fail together, and count once.
func (l *Loop) createFailed(g fleet.Group, began, now time.Time) {
	b := l.backoffs[g.Key]
	if b == nil || b.infra != g.Hashes.Infra {
		b = &backoff{infra: g.Hashes.Infra}
		l.backoffs[g.Key] = b
	}
	if b.failures > 0 && !began.After(b.since) {
		return
	}
	b.failures++
	b.since = now
	b.until = now.Add(createLadder().delay(b.failures))
	l.queue.drop(g.Key) // what has not begun is decided anew once the wait is over
}

// createNotBefore is when the group's next create may begin.
func (l *Loop) createNotBefore(g fleet.Group) time.Time {
	if b := l.backoffs[g.Key]; b != nil && b.infra == g.Hashes.Infra {
		return b.until
	}
	return time.Time{}
}
