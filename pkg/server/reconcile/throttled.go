package reconcile

import (
	"context"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// This file is what the shard makes of a provider that throttles: it is a problem of
// the shard, of no group and of no instance, and what it holds up is repeated.

// throttled tells that throttling has begun.
func (t *term) throttled(p fleet.Problem) {
	t.report(&p)
	t.schedule.signal()
}

// calmed tells that throttling of one kind of call is over.
func (t *term) calmed() {
	t.log.Info("the provider takes calls as they come again")
	if t.cloud.mutations.rate() == 0 && t.cloud.reads.rate() == 0 {
		t.solved(fleet.GroupKey{}, ReasonThrottled)
	}
	t.cfg.Changed(fleet.GroupKey{}, "")
	t.schedule.signal()
}

// putOff has a create that the provider throttled for long be decided anew. The id
// stays. Nothing was made, so the record is to say that nothing can still come,
// unless an earlier create of it may have made something.
func (l *launcher) putOff(ctx context.Context, x *launch, err error) (outcome, error) {
	if !x.repeated {
		if e := l.unassign(ctx, x); e != nil {
			return unclear, e
		}
	}
	l.log.Debug("create put off", slog.String("instance", string(x.record.ID)), slog.Any("error", err))
	return putOff, err
}

// takeBack ends a create that was put off. It is no failure, of the instance or its
// group: it may be asked for again as soon as its turn comes.
func (l *launcher) takeBack(x *launch, err error, now time.Time) {
	l.mu.Lock()
	x.active = false
	delete(l.begun, x.record.ID)
	l.mu.Unlock()
	l.observed.with(x.record.ID, func(b *observation) {
		b.busy, b.retryAt = false, time.Time{}
		b.note(err, now)
	})
	l.schedule.mark(x.group.Key)
}
