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

// ReasonAwaits is the reason of the problem that the static config takes away groups
// that have instances, and waits for a refresh that accepts it.
const ReasonAwaits = "ConfigAwaitsConfirmation"

// waitsForRefresh is why a config does not run that could.
func waitsForRefresh() config.Problems {
	return config.Problems{{Message: "it is valid, and waits for a refresh"}}
}

// ConfigReminder is how often is told that config/ can't run, while that lasts. A
// problem of the shard is taken for over when nothing was heard of it for longer.
const ConfigReminder = shardProblemLife - time.Minute

// remind says again and again that config/ can't run while the last accepted one
// does, and looks whether that is still so, until ctx ends.
func (r *refresher) remind(ctx context.Context) {
	for {
		r.tellOfInvalid()
		if retry.Wait(ctx, r.cfg.ConfigLook) != nil {
			return
		}
		if r.config.now().fromApplied {
			r.lookAgain(ctx)
		}
	}
}

// tellOfInvalid reports it when config/ can't run.
func (r *refresher) tellOfInvalid() {
	c := r.config.now()
	if !c.fromApplied || len(c.awaits) > 0 {
		return
	}
	r.problems.report(fleet.Problem{
		At: r.cfg.Now(), Reason: ReasonConfig,
		Message: fmt.Sprintf("%s can't run, the last accepted config does: %.1000s", ConfigKey(r.cfg.Static.Shard), c.problems.Error()),
	})
}

// tellOfAwaiting reports it when config/ waits to be confirmed, which is once in a term.
func (r *refresher) tellOfAwaiting() {
	if c := r.config.now(); len(c.awaits) > 0 {
		r.problems.report(fleet.Problem{At: r.cfg.Now(), Reason: ReasonAwaits, Message: confirmation(r.cfg.Static.Shard, c.awaits)})
	}
}

// lookAgain reads config/ that could not run. One that was mended runs only when
// somebody asks for a refresh; one that is what runs is no problem any more.
func (r *refresher) lookAgain(ctx context.Context) {
	release, err := r.begin(ctx)
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
		r.problems.over(ReasonConfig)
		r.problems.over(ReasonAwaits)
		return
	case err == nil:
		r.lookAtValid(ctx, o.Info, shard)
	default:
		r.mark(o.Info, invalid, nil)
	}
}

// lookAtValid notes what a config waits for that could run.
func (r *refresher) lookAtValid(ctx context.Context, info object.Info, shard *config.Shard) {
	release, err := r.groups.begin(ctx)
	if err != nil {
		return
	}
	awaits, _ := r.removals.removals(r.config.shard(), shard)
	release()
	if len(awaits) > 0 {
		r.mark(info, nil, awaits)
		return
	}
	r.mark(info, waitsForRefresh(), nil)
}
