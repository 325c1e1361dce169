package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/delivery"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/groups"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
	"github.com/nstance/nstance/pkg/server/writes"
)

// refresher rereads the static config and switches to it. Safe for concurrent use: refreshes are
// serialized.
type refresher struct {
	cfg      Config
	term     context.Context //nolint:containedctx // all refreshes end with it
	config   *running
	groups   *groups.Groups
	accepts  *acceptance
	removals removalCheck
	problems *problems.Set
	loop     *reconcile.Loop
	files    *delivery.Delivery

	under chan struct{} // holds one token while the static config is reread
}

var _ operators.Static = (*refresher)(nil)

// Status implements operators.Static.
func (r *refresher) Status() operators.ConfigStatus {
	c := r.config.now()
	return operators.ConfigStatus{
		ETag: string(c.info.ETag), LastModified: c.info.ModTime, Size: c.info.Size,
		RunningApplied: c.fromApplied, Problems: c.problems, RestartRequired: slices.Clone(c.restart), Awaits: slices.Clone(c.awaits),
		Shrunk: slices.Clone(c.shrunk),
	}
}

// Refresh implements operators.Static.
func (r *refresher) Refresh(
	ctx context.Context, accepted []fleet.GroupKey,
) (is operators.Refreshed, err error) {
	release, err := r.lock(ctx)
	if err != nil {
		return is, err
	}
	defer release()
	if is.Preview, is.Updated, err = r.refresh(ctx, accepted); err != nil {
		return operators.Refreshed{}, err
	}
	r.files.Refreshed() // secrets and storage may have changed even if the config has not
	is.ConfigStatus = r.Status()
	return is, nil
}

// lock waits until no other refresh is under way.
func (r *refresher) lock(ctx context.Context) (release func(), err error) {
	select {
	case r.under <- struct{}{}:
		return func() { <-r.under }, nil
	case <-r.term.Done():
		return nil, writes.ErrNoTerm()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the running refresh: %w", context.Cause(ctx))
	}
}

// refresh rereads the static config, and switches to it if it differs, is valid, and removes no
// group with instances other than the accepted ones. Its errors are kinds of package rpc.
func (r *refresher) refresh(
	ctx context.Context, accepted []fleet.GroupKey,
) (did operators.ConfigPreview, updated bool, err error) {
	o, shard, err := r.read(ctx)
	invalid := errors.As(err, new(config.Problems))
	now := r.config.now()
	same := err == nil && !now.fromApplied && bytes.Equal(o.Body, now.body)
	switch {
	case invalid:
		r.mark(o.Info, problemsOf(err))
		r.reportInvalid()
		return did, false, r.invalid(err)
	case err != nil:
		return did, false, r.storageError(err)
	case same && now.recorded:
		if err := r.removals.areGone(now, accepted); err != nil {
			return did, false, err
		}
		now.info = o.Info
		r.config.swap(now)
		return did, false, r.stillLeading()
	}
	operators.Refreshing(ctx, r.Status(), string(o.ETag))
	did, err = r.become(ctx, Accepted{shard: shard, body: o.Body, info: o.Info, accepted: accepted}.on(r.cfg.Boot))
	if err != nil {
		return did, false, r.storageError(err)
	}
	return did, !same, nil
}

// become switches to a valid config, unless it removes groups with instances without confirmation.
func (r *refresher) become(ctx context.Context, next Accepted) (did operators.ConfigPreview, err error) {
	now := r.config.now()
	permits := func(last appliedConfig) error {
		err := r.removals.permits(now.shard, next.shard, next.accepted)
		if err == nil && !bytes.Equal(last.body, now.body) {
			err = r.removals.unasked(last, next) // a group of it may live on although the running config lacks it
		}
		if err == nil {
			did = r.preview(now, next) // of what is there when it is permitted
		}
		return err
	}
	if err := r.accepts.accept(ctx, candidate{next, permits, r.removals.counted(), r.swap}); err != nil {
		if awaits := awaitedBy(err); len(awaits) > 0 {
			r.await(next, awaits, next.shard)
		}
		return did, err
	}
	if !r.removals.counted() {
		r.accepts.doubt() // lower
	}
	r.refreshed()
	return did, nil
}

// swap swaps the running config between two passes of the loop.
func (r *refresher) swap(next *config.Shard, inPlace func()) error {
	return r.loop.Reconfigure(tuning(next), inPlace)
}

// late does what atTakeover could not do; otherwise it is a no-op. It reports failures
// itself; an error means that it has to be retried.
func (r *refresher) late() error {
	release, err := r.lock(r.term)
	if err != nil {
		return err
	}
	defer release()
	c := r.config.now()
	if c.recorded {
		return r.lower()
	}
	permits := func(last appliedConfig) error { return r.removals.unasked(last, c) }
	err = r.accepts.accept(r.term, candidate{c, permits, r.removals.counted(), r.swap})
	if errors.Is(err, groups.ErrUnreadable) {
		return nil // retried once the record can be read
	}
	if err != nil {
		r.reportStorage(err)
		return err
	}
	r.accepts.tell(c)
	return nil
}

// errUncounted means that records can't name smaller sizes yet.
var errUncounted = errors.New("not every machine is known yet")

// lower makes records name the sizes of the running config that are smaller, once all machines are known.
// What is held by what the records name is judged first.
func (r *refresher) lower() error {
	is, records := r.config.shard(), r.groups.Records()
	has := func(key fleet.GroupKey) bool { return records[key].HasLessBy(is, key) }
	switch {
	case !slices.ContainsFunc(slices.Collect(maps.Keys(records)), has):
		return nil
	case !r.removals.counted():
		return errUncounted
	}
	return r.accepts.writes.Do(r.term, func(ctx context.Context) error {
		release, err := r.groups.LockEdits(ctx)
		if err != nil {
			return err
		}
		defer release()
		return r.groups.CarryOver(ctx, is, nil, true)
	})
}

// reportStorage reports why a config was not accepted, if the term goes on.
func (r *refresher) reportStorage(err error) {
	if r.term.Err() == nil {
		r.problems.Set(fleet.Problem{At: r.cfg.Now(), Reason: problems.ReasonStorage, Message: err.Error()})
	}
}

// read reads and checks config/. It ends with the term, and after the request timeout. The
// error is a Problems if the config can't run.
func (r *refresher) read(ctx context.Context) (object.Object, *config.Shard, error) {
	ctx, cancel := context.WithTimeout(ctx, r.config.requestTimeout())
	defer cancel()
	defer context.AfterFunc(r.term, cancel)() //nolint:contextcheck // the term's end ends the read, as the caller's does
	return r.cfg.Static.text(ctx)
}

// mark notes why config/ does not run, until a refresh or recheck finds otherwise.
func (r *refresher) mark(info object.Info, problems config.Problems) {
	now := r.config.now()
	now.info, now.fromApplied, now.problems, now.awaits, now.awaiting = info, true, problems, nil, nil
	r.config.swap(now)
	r.over(ReasonAwaits)
}

// await notes that config/ does not run because it waits for removals to be accepted, until a
// refresh or recheck finds otherwise. asked is that config if it was asked for.
func (r *refresher) await(next Accepted, awaits []operators.Removal, asked *config.Shard) {
	now := r.config.now()
	known := now.info.ETag == next.info.ETag && slices.EqualFunc(now.awaits, awaits, sameGroup)
	now.info, now.fromApplied, now.problems, now.awaits, now.awaiting = next.info, true, nil, awaits, asked
	r.config.swap(now)
	if !known {
		r.over(ReasonConfig)
		r.reportAwaiting()
	}
}

func sameGroup(a, b operators.Removal) bool { return a.Key == b.Key }

func (r *refresher) invalid(err error) error {
	return &rpc.ViolationsError{
		Message:    ConfigKey(r.cfg.Static.Shard) + " is invalid; the previous config stays active",
		Violations: writes.Violations(problemsOf(err)),
	}
}

// refreshed propagates the config that was just swapped in to the parts that do not read it
// themselves.
func (r *refresher) refreshed() {
	c := r.config.now()
	r.cfg.Running(c.shard)
	r.over(ReasonConfig)
	r.over(ReasonAwaits)
	groups.Reports(r.groups).ReportAll()
	r.cfg.Logger.Info("config refreshed",
		slog.String("etag", string(c.info.ETag)), slog.String("restart_required", strings.Join(c.restart, ", ")))
}

// stillLeading returns an error if the term is over: the result would be a former leader's.
func (r *refresher) stillLeading() error {
	if r.term.Err() != nil {
		return writes.ErrNoTerm()
	}
	return nil
}

// storageError maps an error that kept a refresh from completing, of the store or of the term,
// to an rpc kind.
func (r *refresher) storageError(err error) error {
	switch {
	case errors.As(err, new(rpc.Kind)):
		return err
	case r.term.Err() != nil, errors.Is(err, election.ErrNotLeader):
		return writes.ErrNoTerm()
	case errors.Is(err, object.ErrRefused):
		return rpc.Precondition.Errorf("the previous config stays active: fix the cause, then try again: %w", err)
	default:
		return rpc.Unavailable.Errorf("object storage error, the previous config stays active: try again: %w", err)
	}
}
