package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/deletions"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
)

// remove moves the record to deleting and then asks the provider to delete the VM, without waiting for the
// answer. The poller then waits for its end; the tombstone is a separate action.
func (l *Loop) remove(ctx context.Context, a plan.Action, s step, ended func(error)) {
	r, err := l.condemn(ctx, a, s)
	if err != nil || r.Phase != fleet.Deleting {
		ended(err)
		return
	}
	ask := func() {
		l.cloud.AskToDelete(ctx, provider.RefOf(r), func(err error) { ended(l.askedToDelete(r, err)) })
	}
	g := l.desired(r.GroupKey())
	first := l.observed.PollFirst(r, time.Now())
	if !first && l.balancer.Idle(g) {
		ask()
		return
	}
	l.workers.Go(func() {
		l.balancer.Deregister(ctx, g, r) // before the machine is deleted
		if first {
			describe(ctx, l, r)
		}
		ask()
	})
}

// condemn moves the record to deleting. It returns the record, which has another phase if that came too late.
func (l *Loop) condemn(ctx context.Context, a plan.Action, s step) (fleet.Instance, error) {
	was, _ := l.cfg.Ledger.Get(a.ID)
	known := l.observed.Get(a.ID)
	why := known.Explain(a.Reason)
	s.reason, s.also = why, failureOf(a, known, l.cfg.Groups.Settings())
	if err := l.records.move(ctx, a.ID, s); err != nil {
		return fleet.Instance{}, err
	}
	if was.OnDemand || !l.pacer.Failing(was.GroupKey()) { // otherwise problems.ReasonCreatesFailing covers it
		l.reports.fail(ctx, observe.DiedYoung(was, a.Reason, why), was.GroupKey(), a.ID)
	}
	r, ok := l.cfg.Ledger.Get(a.ID)
	if !ok || r.Phase != fleet.Deleting {
		return r, nil
	}
	l.deletions.Start(was, r, time.Now())
	// A retry time of the create does not apply to the delete.
	l.observed.RetryAt(a.ID, time.Time{})
	l.reports.changed(r.GroupKey(), a.ID) // closes its streams before the provider is called
	return r, nil
}

// describe polls a VM just before it is deleted, since its create may still be in progress.
func describe(ctx context.Context, l *Loop, r fleet.Instance) {
	if got := l.cloud.Get(ctx, provider.RefOf(r))[0]; got.Err == nil { // best effort
		now := time.Now()
		mark(l.schedule, now, l.observed.See(now, answerAbout(r, got))...)
	}
}

// askedToDelete handles the provider's answer to a delete. Throttling is no failure: the
// delete is retried.
func (l *Loop) askedToDelete(r fleet.Instance, err error) error {
	now := time.Now()
	again := l.deletions.Answered(r, err, now)
	l.observed.RetryAt(r.ID, again)
	switch {
	case errors.Is(err, provider.ErrThrottled):
		return nil
	case err != nil && deletions.Refused(err): // reported by watchDeletions until it is over
		l.schedule.Mark(r.GroupKey())
		return problems.Because(problems.ReasonDeleteRefused, fmt.Errorf("delete instance %s: %w", r.ID, err))
	case err != nil:
		return problems.Because(problems.ReasonProvider, fmt.Errorf("delete instance %s: %w", r.ID, err))
	}
	l.log.Info("delete accepted", slog.String("instance", string(r.ID)), slog.String("reason", r.Reason))
	l.poller.poll(r.ID, now)
	return nil
}

// failure returns a change that sets a record's Failure, unless it is set already.
func failure(err error) func(*fleet.Instance) {
	return func(i *fleet.Instance) {
		if i.Failure == "" {
			i.Failure = problems.Text(err)
		}
	}
}

// failureOf returns failure for an on-demand instance that is given up without a machine ever
// seen, and nil otherwise. If a machine was seen while it was deleted, the change clears the
// failure.
func failureOf(a plan.Action, known observe.Snapshot, settings plan.Settings) func(*fleet.Instance) {
	var err error
	switch {
	case a.Kind == plan.Tombstone && known.Shown:
		return func(i *fleet.Instance) { i.Failure = "" }
	case plan.Word(a.Reason) == plan.ReasonCreateTimeout:
		err = fmt.Errorf("no machine was made within %v (server.on_demand.create_timeout)", settings.CreateTimeout)
	case plan.Word(a.Reason) == plan.ReasonRegistrationTimeout && !known.Shown:
		err = fmt.Errorf("the outcome of the create is unknown, and no agent registered within %v (%s)", settings.RegistrationTimeout,
			"server.garbage_collection.registration_timeout")
	default:
		return nil
	}
	if cause := cmp.Or(known.LastError, known.Refused); cause != "" {
		err = fmt.Errorf("%w: %s", err, cause)
	}
	fail := failure(err)
	return func(i *fleet.Instance) {
		if i.OnDemand && i.Provider.ID == "" {
			fail(i)
		}
	}
}

// watchDeletions reports a group's deletions that were refused permanently or are stuck.
func (l *Loop) watchDeletions(key fleet.GroupKey, now time.Time) {
	told, over, again := l.deletions.Check(key, func(id fleet.InstanceID) bool {
		r, ok := l.cfg.Ledger.Get(id)
		return ok && r.Phase == fleet.Deleting
	}, now)
	for _, p := range told {
		if p.Reason == problems.ReasonDeleteRefused { // which says more
			l.reports.clear(key, p.Instance, problems.ReasonDeleteStuck)
		}
		l.reports.report(&p)
	}
	for _, id := range over {
		l.log.Info("stuck deletion ended", slog.String("instance", string(id)), slog.String("group", key.String()))
		l.reports.clear(key, id, problems.ReasonDeleteStuck)
		l.reports.clear(key, id, problems.ReasonDeleteRefused)
		l.reports.changed(key, id)
	}
	l.schedule.MarkAt(key, again)
}
