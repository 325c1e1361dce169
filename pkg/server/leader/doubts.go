package leader

import (
	"context"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// doubts schedules the resolution of writes to groups/ and applied/ whose outcome is unknown.
// Resolving them at once, and not with the next edit, makes such a write take effect within this
// term or never.
type doubts struct{ asked chan struct{} }

func newDoubts() *doubts { return &doubts{asked: make(chan struct{}, 1)} }

// request schedules a settle.
func (d *doubts) request() {
	select {
	case d.asked <- struct{}{}:
	default: // already scheduled
	}
}

// run calls settle after each request until ctx ends, and retries it with back-off until it
// succeeds. Requests that arrive before an attempt share it.
func (d *doubts) run(ctx context.Context, settle func() error, random func() float64) {
	pauses := retry.Backoff{First: time.Second, Limit: 30 * time.Second, Least: time.Second}
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.asked:
		}
		for n := 1; ; n++ {
			if retry.Wait(ctx, pauses.Draw(n, random)) != nil {
				return
			}
			select {
			case <-d.asked: // this attempt covers it
			default:
			}
			if settle() == nil {
				break
			}
		}
	}
}

// resolveDoubts reads the objects in doubt and writes them again: the write of unknown outcome
// has either landed before the read, or fails its precondition from then on. A group that
// can't be read is an error, and retried like a storage error.
func (t *Term) resolveDoubts() error {
	if err := t.groups.ResolveDoubts(t.ctx); err != nil {
		return err
	}
	return t.refresh.late()
}
