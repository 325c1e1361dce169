package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/operators"
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

// awaitedInterval is how often the leader checks whether a config still takes away what it waits
// for. This costs no request.
const awaitedInterval = 5 * time.Second

// ConfigReminder is how often the problem that config/ can't run is reported again.
const ConfigReminder = 4 * time.Minute

// over ends the problem of the static config with a reason.
func (r *refresher) over(reason string) { r.problems.Clear(fleet.GroupKey{}, "", reason) }

// remind reports periodically that config/ can't run and the last accepted config runs
// instead, and rereads config/ each time, until ctx ends. It also rereads it, once in between, when a
// config that awaits confirmation has nothing to wait for any more.
func (r *refresher) remind(ctx context.Context) {
	for next, tried := time.Duration(0), false; ; {
		if next <= 0 {
			r.reportInvalid()
			next, tried = r.cfg.ConfigLook, false
		}
		pause := min(next, awaitedInterval)
		if retry.Wait(ctx, pause) != nil {
			return
		}
		next -= pause
		if early := !tried && r.freed(); r.config.now().fromApplied && (next <= 0 || early) {
			tried = early
			r.recheck(ctx)
		}
	}
}

// freed reports whether nothing that a config waits for was ever there. Only recheck decides.
func (r *refresher) freed() bool {
	c := r.config.now()
	return c.awaiting != nil && r.needless(c.awaiting) && len(r.removals.removals(c.shard, c.awaiting)) == 0
}

// needless reports whether a config confirms itself what the one before awaited, or that was of
// groups which never had a machine. Machines that are merely gone confirm nothing: they may come
// back, and so may their records.
func (r *refresher) needless(next *config.Shard) bool {
	return !slices.ContainsFunc(r.config.now().awaits, func(a operators.Removal) bool {
		return !lists(next, a.Key) && !r.removals.unused(a.Key)
	})
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
// request; one that equals the running config ends the problem. A config that awaited confirmation,
// or that differs from it only in what it confirms itself, runs once it needs none: it was asked for.
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
		now.info, now.fromApplied, now.problems, now.awaits, now.awaiting = o.Info, false, nil, nil, nil
		r.config.swap(now)
		r.over(ReasonConfig)
		r.over(ReasonAwaits)
		return
	case err == nil:
		r.recheckValid(ctx, Accepted{shard: shard, body: o.Body, info: o.Info})
	default:
		r.mark(o.Info, invalid)
	}
}

// recheckValid finds out what a valid config waits for: a confirmation, a refresh, or nothing.
func (r *refresher) recheckValid(ctx context.Context, next Accepted) {
	release, err := r.groups.LockEdits(ctx)
	if err != nil {
		return
	}
	now := r.config.now()
	awaits := r.removals.removals(now.shard, next.shard)
	release()
	var asked *config.Shard
	if now.awaiting != nil && sameBesidesRemoved(now.awaiting, next.shard) {
		asked = next.shard
	}
	_, ending := restartFields(r.cfg.Boot, next.shard)
	switch {
	case len(awaits) > 0:
		r.await(next, awaits, asked)
	case asked == nil || len(ending) > 0:
		r.mark(next.info, waitsForRefresh())
	case r.needless(next.shard):
		r.take(ctx, next.on(r.cfg.Boot))
	case r.removals.recorded():
		r.mark(next.info, waitsForRefresh())
	} // otherwise what it waits for is not known yet
}

// sameBesidesRemoved reports whether two configs differ at most in the groups that they list as
// removed.
func sameBesidesRemoved(a, b *config.Shard) bool {
	x, y := *a, *b
	x.Removed, y.Removed = nil, nil
	return reflect.DeepEqual(x, y)
}

// take switches to a config that needs no confirmation any more.
func (r *refresher) take(ctx context.Context, next Accepted) {
	_, err := r.become(ctx, next)
	switch {
	case err == nil:
		r.files.Refreshed() // as after a refresh
		r.cfg.Logger.Info("the config that awaited confirmation took effect", slog.String("etag", string(next.info.ETag)))
	case len(awaitedBy(err)) == 0: // tried again
		r.reportStorage(err)
	}
}
