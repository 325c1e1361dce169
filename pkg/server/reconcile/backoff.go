package reconcile

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
)

// createBackoff is for a group whose creates fail; stepBackoff for one step of one
// instance, which the store or the provider refused, and which costs little to try.
func createBackoff() retry.Backoff { return retry.Backoff{First: time.Second, Limit: 5 * time.Minute} }
func stepBackoff() retry.Backoff {
	return retry.Backoff{First: 500 * time.Millisecond, Limit: 15 * time.Second}
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
	b.until = now.Add(createBackoff().Delay(b.failures))
	l.queue.drop(g.Key) // what has not begun is decided anew once the wait is over
}

// createNotBefore is when the group's next create may begin.
func (l *Loop) createNotBefore(g fleet.Group) time.Time {
	if b := l.backoffs[g.Key]; b != nil && b.infra == g.Hashes.Infra {
		return b.until
	}
	return time.Time{}
}
