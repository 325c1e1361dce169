package reconcile

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/schedule"
)

// steps runs the steps of instances and groups in workers.
type steps struct {
	observed *observe.State
	schedule *schedule.Schedule
	reports  *reporter
	workers  *sync.WaitGroup
}

// stepBackoff is the back-off of cheap steps of one instance that failed in the store or the
// provider.
func stepBackoff() retry.Backoff {
	return retry.Backoff{First: 500 * time.Millisecond, Limit: 15 * time.Second}
}

// work runs one step of an instance or, without an id, an edit of the group in a worker: one
// at a time for each, and with back-off after a failure.
func (s *steps) work(ctx context.Context, key fleet.GroupKey, id fleet.InstanceID, now time.Time, step func() error) {
	ok, notBefore := s.observed.StartStep(key, id, now)
	if !ok {
		s.schedule.MarkAt(key, notBefore)
		return
	}
	s.workers.Go(func() {
		err := step()
		repeated := s.observed.EndStep(key, id, err, stepBackoff().Delay, time.Now())
		s.schedule.Mark(key)
		switch {
		case id == "" && err != nil:
			err = problems.Because(problems.ReasonStorage, fmt.Errorf("edit group %s: %w", key, err))
		case repeated:
			return // reported already
		}
		s.reports.changed(key, id)
		s.reports.fail(ctx, err, key, id)
	})
}
