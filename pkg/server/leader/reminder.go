package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
)

// ReasonConfig is the reason of problems with the static config.
const ReasonConfig = "ConfigInvalid"

// ReasonAwaits is the reason of the problem that the static config removes groups that have
// instances, and waits for a refresh that accepts that.
const ReasonAwaits = "ConfigAwaitsConfirmation"

// waitsForRefresh is the problem of a valid config that does not run yet.
func waitsForRefresh() config.Problems {
	return config.Problems{{Message: "valid, waiting for a refresh"}}
}

// ConfigReminder is how often the problem that config/ can't run is reported again.
const ConfigReminder = 4 * time.Minute

// over ends the problem of the static config with a reason.
func (r *refresher) over(reason string) { r.problems.Clear(fleet.GroupKey{}, "", reason) }

// remind reports periodically that config/ can't run and the last accepted config runs
// instead, and rereads config/ each time, until ctx ends.
func (r *refresher) remind(ctx context.Context) {
	for {
		r.reportInvalid()
		if retry.Wait(ctx, r.cfg.ConfigLook) != nil {
			return
		}
		if r.config.now().fromApplied {
			r.recheck(ctx)
		}
	}
}

// reportInvalid reports a config/ that can't run.
func (r *refresher) reportInvalid() {
	c := r.config.now()
	if !c.fromApplied || len(c.awaits) > 0 {
		return
	}
	r.problems.Set(fleet.Problem{
		At: r.cfg.Now(), Reason: ReasonConfig, Lasts: true,
		Message: fmt.Sprintf("%s can't run, the last accepted config stays active: %.1000s", ConfigKey(r.cfg.Static.Shard), c.problems.Error()),
	})
}

// reportAwaiting reports a config/ that waits for confirmation, once per term.
func (r *refresher) reportAwaiting() {
	if c := r.config.now(); len(c.awaits) > 0 {
		r.problems.Set(fleet.Problem{
			At: r.cfg.Now(), Reason: ReasonAwaits, Message: confirmation(r.cfg.Static.Shard, c.awaits), Lasts: true,
		})
	}
}

// recheck rereads config/ while it can't run. A corrected config runs only after a refresh
// request; one that equals the running config ends the problem.
func (r *refresher) recheck(ctx context.Context) {
	release, err := r.lock(ctx)
	if err != nil {
		return
	}
	defer release()
	now := r.config.now()
	o, shard, err := r.read(ctx)
	var invalid config.Problems
	switch unread := err != nil && !errors.As(err, &invalid); {
	case !now.fromApplied || unread:
		return
	case err == nil && bytes.Equal(o.Body, now.body):
		now.info, now.fromApplied, now.problems, now.awaits = o.Info, false, nil, nil
		r.config.swap(now)
		r.over(ReasonConfig)
		r.over(ReasonAwaits)
		return
	case err == nil:
		r.recheckValid(ctx, o.Info, shard)
	default:
		r.mark(o.Info, invalid, nil)
	}
}

// recheckValid notes what a valid config waits for: a confirmation or a refresh.
func (r *refresher) recheckValid(ctx context.Context, info object.Info, shard *config.Shard) {
	release, err := r.groups.LockEdits(ctx)
	if err != nil {
		return
	}
	awaits := r.removals.removals(r.config.shard(), shard)
	release()
	if len(awaits) > 0 {
		r.mark(info, nil, awaits)
		return
	}
	r.mark(info, waitsForRefresh(), nil)
}
