package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/paced"
	"github.com/nstance/nstance/pkg/server/problems"
)

// This file handles throttling by the provider: it is a problem of the shard, not of a group or
// an instance, and the affected calls are retried.

// throttled reports that throttling has begun.
func (l *Loop) throttled(is paced.Throttling) {
	p := throttledProblem(is)
	l.reports.report(&p)
	l.schedule.Wake()
}

// throttledProblem returns the problem that the provider throttles. The message stays the same
// while it does.
func throttledProblem(is paced.Throttling) fleet.Problem {
	text := fmt.Sprintf("the provider is throttling; %s are sent at a reduced rate since %s: %s",
		is.Calls, is.Since.UTC().Format(time.RFC3339), problems.Text(is.Err))
	return fleet.Problem{At: is.Since, Reason: problems.ReasonThrottled, Message: text, Lasts: true}
}

// calmed reports that throttling of a kind of call has ended.
func (l *Loop) calmed() {
	l.log.Info("provider throttling ended")
	if left := l.cloud.Throttled(); len(left) > 0 { // the calls that recovered may have been reported last
		p := throttledProblem(left[0])
		l.reports.report(&p)
	} else {
		l.reports.clear(fleet.GroupKey{}, "", problems.ReasonThrottled)
	}
	l.reports.changed(fleet.GroupKey{}, "")
	l.schedule.Wake()
}

// putOff defers a create that the provider throttled for long; it keeps its id. Unless an
// earlier create may have made a VM, the record is updated to say that none can exist.
func (l *launcher) putOff(ctx context.Context, x *launch, err error) (createResult, error) {
	if !x.repeated {
		if e := l.unassign(ctx, x); e != nil {
			return unclear, e
		}
	}
	l.log.Debug("create deferred", slog.String("instance", string(x.record.ID)), slog.Any("error", err))
	return putOff, err
}

// postpone ends a create that was put off. It does not count as a failure of the instance or
// its group, so the create is retried without back-off.
func (l *launcher) postpone(x *launch, err error, now time.Time) {
	l.mu.Lock()
	x.active = false
	delete(l.begun, x.record.ID)
	l.mu.Unlock()
	l.observed.EndCreate(x.record.ID, err, now)
	l.schedule.Mark(x.group.Key)
}
