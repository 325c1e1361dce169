package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/delivery"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// refresher reads the static config again and goes over to it. Safe for concurrent
// use: one comes after another.
type refresher struct {
	cfg      Config
	term     context.Context //nolint:containedctx // in which all refreshes end
	config   *running
	groups   *groups
	removals removalCheck
	problems *problems
	doubt    func() // called when it is not known what applied/ holds

	// Set before the first refresh.
	loop  *reconcile.Loop
	files *delivery.Delivery

	under   chan struct{} // holds one while the static config is read again
	applied versioned     // of applied/; belongs to the acceptance under way
}

var _ operators.Static = (*refresher)(nil)

// Status implements operators.Static.
func (r *refresher) Status() operators.ConfigStatus {
	c := r.config.now()
	return operators.ConfigStatus{
		ETag: string(c.info.ETag), LastModified: c.info.ModTime, Size: c.info.Size,
		RunningApplied: c.fromApplied, Problems: c.problems, RestartRequired: slices.Clone(c.restart), Awaits: slices.Clone(c.awaits),
	}
}

// Refresh implements operators.Static.
func (r *refresher) Refresh(
	ctx context.Context, accepted []fleet.GroupKey,
) (is operators.ConfigStatus, updated bool, err error) {
	release, err := r.begin(ctx)
	if err != nil {
		return is, false, err
	}
	defer release()
	if updated, err = r.refresh(ctx, accepted); err != nil {
		return is, false, err
	}
	r.files.Refreshed() // secrets and storage may have changed even if the config has not
	return r.Status(), updated, nil
}

// begin waits until no other refresh is under way.
func (r *refresher) begin(ctx context.Context) (release func(), err error) {
	select {
	case r.under <- struct{}{}:
		return func() { <-r.under }, nil
	case <-r.term.Done():
		return nil, ErrNoTerm()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the refresh before: %w", context.Cause(ctx))
	}
}

// refresh reads the static config again, and goes over to it when it is another
// one that is valid, and takes away no group with instances but those accepted. Its
// errors are kinds of package rpc.
func (r *refresher) refresh(ctx context.Context, accepted []fleet.GroupKey) (updated bool, err error) {
	o, shard, err := r.read(ctx)
	invalid := errors.As(err, new(config.Problems))
	now := r.config.now()
	settled := err == nil && !now.fromApplied && now.recorded
	switch {
	case invalid:
		r.mark(o.Info, problemsOf(err), nil)
		r.tellOfInvalid()
		return false, r.invalid(err)
	case err != nil:
		return false, r.storageError(err)
	case settled && bytes.Equal(o.Body, now.body):
		if err := r.removals.areGone(accepted); err != nil {
			return false, err
		}
		now.info = o.Info
		r.config.swap(now)
		return false, r.stillLeading()
	}
	next := Accepted{shard: shard, body: o.Body, info: o.Info}.on(r.cfg.Boot)
	permits := func(appliedConfig) error { return r.removals.permits(now.shard, next.shard, accepted) }
	if err := r.accept(ctx, next, permits, r.betweenPasses(next.shard)); err != nil {
		if awaits := awaitedBy(err); len(awaits) > 0 {
			r.mark(o.Info, nil, awaits)
		}
		return false, r.storageError(err)
	}
	r.refreshed()
	return true, nil
}

// read reads and checks config/. It gives up with the term, and after a request's
// time. The error is a Problems when what there is can't run.
func (r *refresher) read(ctx context.Context) (object.Object, *config.Shard, error) {
	ctx, cancel := context.WithTimeout(ctx, r.config.requestTimeout())
	defer cancel()
	defer context.AfterFunc(r.term, cancel)() //nolint:contextcheck // the term's end ends the read, as the caller's does
	return r.cfg.Static.text(ctx)
}

// mark notes why config/ does not run, until a refresh or a look finds otherwise: it is
// not valid, or waits for removals to be accepted.
func (r *refresher) mark(info object.Info, problems config.Problems, awaits []operators.Removal) {
	now := r.config.now()
	known := now.info.ETag == info.ETag && slices.EqualFunc(now.awaits, awaits, sameGroup)
	now.info, now.fromApplied, now.problems, now.awaits = info, true, problems, awaits
	r.config.swap(now)
	switch {
	case len(awaits) == 0:
		r.problems.over(ReasonAwaits)
	case !known:
		r.problems.over(ReasonConfig)
		r.tellOfAwaiting()
	}
}

func sameGroup(a, b operators.Removal) bool { return a.Key == b.Key }

func (r *refresher) invalid(err error) error {
	return &rpc.ViolationsError{
		Message:    ConfigKey(r.cfg.Static.Shard) + " is not valid, the config that was accepted before goes on to run",
		Violations: violations(problemsOf(err)),
	}
}

func violations(problems config.Problems) []rpc.Violation {
	out := make([]rpc.Violation, 0, len(problems))
	for _, p := range problems {
		out = append(out, rpc.Violation{Field: p.Path, Description: p.Message})
	}
	return out
}

// refreshed makes everything that does not ask for itself follow the config that
// was just swapped in.
func (r *refresher) refreshed() {
	c := r.config.now()
	r.cfg.Running(c.shard)
	for _, field := range Ineffective(c.shard) {
		r.cfg.Logger.Warn("a part of the config has no effect in this version", slog.String("field", field))
	}
	r.problems.over(ReasonConfig)
	r.problems.over(ReasonAwaits)
	r.groups.tell()
	r.cfg.Logger.Info("config refreshed",
		slog.String("etag", string(c.info.ETag)), slog.String("restart_required", strings.Join(c.restart, ", ")))
}

// stillLeading is nil while the term lasts: an answer after it would be an old
// leader's.
func (r *refresher) stillLeading() error {
	if r.term.Err() != nil {
		return ErrNoTerm()
	}
	return nil
}

// storageError is what to tell a caller about a refresh that the store, or the end
// of the term, kept from being done.
func (r *refresher) storageError(err error) error {
	switch {
	case errors.As(err, new(rpc.Kind)):
		return err
	case r.term.Err() != nil, errors.Is(err, election.ErrNotLeader):
		return ErrNoTerm()
	default:
		return rpc.Unavailable.Errorf("object storage does not answer as it should, and the config that ran goes on to run: try again: %w", err)
	}
}
