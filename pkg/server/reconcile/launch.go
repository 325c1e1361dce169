package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
)

// createResult is the outcome of a create.
type createResult int

const (
	unmade     createResult = iota // definitely nothing was made
	made                           // there is a VM
	unnoted                        // there is a VM, but the record does not name it yet
	unclear                        // there may be a VM: retry with the same id
	unrecorded                     // the record may have been written; the provider was not called
	putOff                         // the provider throttles: retry with the same id
)

// launch creates one instance: nonce, record, VM, in this order, so that after a crash the
// record has the id to continue with.
func (l *launcher) launch(ctx context.Context, x *launch) {
	traced, end := l.starts.Launch(ctx, l.started(x))
	out, err := l.carryOut(traced, x)
	end(err)
	err = l.observed.Refusal(x.record.ID, err)
	if out == unmade {
		l.starts.Failed(x.record.ID, err)
	}
	told := l.ended(x, out, err, time.Now())
	l.reports.changed(x.group.Key, x.record.ID)
	if !told {
		l.reports.fail(ctx, err, x.group.Key, x.record.ID)
	}
}

func (l *launcher) carryOut(ctx context.Context, x *launch) (createResult, error) {
	_, recorded := l.records.get(x.record.ID)
	if err := l.confirmRecord(ctx, x); err != nil {
		return unclear, err
	}
	spec, err := l.builder.Build(ctx, x.record, x.group)
	if err != nil {
		return unlessRecorded(recorded, x), problems.Because(problems.ReasonBuild, fmt.Errorf("build instance %s: %w", x.record.ID, err))
	}
	// A create that was called before is repeated in the same subnet, so that the
	// provider's idempotency token matches.
	x.repeated = recorded && createCalled(x.record)
	switch err := l.place(ctx, x, recorded); {
	case err != nil && givenUp(x, err):
		return l.abandon(ctx, x, err)
	case err != nil:
		return unlessRecorded(recorded, x), err
	}
	if !recorded {
		if err := l.records.create(ctx, x.record); err != nil {
			return unrecorded, err
		}
		l.reports.changed(x.group.Key, x.record.ID) // the instance is visible from now on
		l.tellCreate(x)
	}
	l.announce(x, time.Now())
	vm, asked, err := l.callCreate(ctx, x, spec)
	l.release(x) // only store writes are left
	if err == nil {
		l.starts.Made(x.record.ID)
		return l.created(ctx, x, vm, asked)
	}
	return l.unanswered(ctx, x, recorded, err)
}

// unanswered returns the outcome of a create for which the provider returned no VM.
func (l *launcher) unanswered(ctx context.Context, x *launch, recorded bool, err error) (createResult, error) {
	switch {
	case errors.Is(err, provider.ErrThrottled):
		return l.putOff(ctx, x, createProblem(x, err))
	case provider.Definite(err) && !recorded, givenUp(x, err):
		return l.abandon(ctx, x, createProblem(x, err))
	case provider.Definite(err) && !x.repeated:
		// No VM can result from this create. The record has to say so, because then the
		// registration timeout does not apply.
		return unclear, createProblem(x, errors.Join(err, l.unassign(ctx, x)))
	default:
		// A refusal of a repeated create does not tell the outcome of the first call, so
		// the id and the attempt stay until a create succeeds, the provider says that
		// the attempt is spent, or the registration timeout ends the instance.
		return unclear, createProblem(x, err)
	}
}

// givenUp reports whether a failed create ends an on-demand instance. Its caller knows the
// id, so the create is retried with the same id until server.on_demand.create_timeout, unless
// the error is permanent and nothing was made.
func givenUp(x *launch, err error) bool {
	hopeless := errors.Is(err, provider.ErrInvalid) || errors.Is(err, provider.ErrUnauthorized) || errors.Is(err, provider.ErrUnsupported)
	return x.record.OnDemand && !x.repeated && hopeless
}

// unlessRecorded returns the outcome of a create that failed before its record was written
// by this call.
func unlessRecorded(recorded bool, x *launch) createResult {
	switch {
	case recorded:
		return unclear
	case !x.retryAt.IsZero():
		return unrecorded // an earlier attempt may have written the record
	default:
		return unmade
	}
}

// announce logs that a create is called; for a replacement with all times since the first sign
// of the loss.
func (l *launcher) announce(x *launch, now time.Time) {
	if x.replaces == "" {
		l.log.Info("create started", slog.String("instance", string(x.record.ID)), slog.String("group", x.group.Key.String()))
		return
	}
	if l.replacing != nil {
		l.replacing(x.record.ID, x.loss.At)
	}
	l.log.Info("replacement started", slog.String("instance", string(x.record.ID)), slog.String("replaces", string(x.replaces)),
		slog.String("group", x.group.Key.String()), slog.String("sign", x.loss.Sign),
		slog.String("why", l.observed.Get(x.replaces).Why), slog.String("disconnected_at", stamp(x.loss.At)),
		slog.String("status_at", stamp(x.loss.StatusAt)), slog.String("decided_at", stamp(x.decidedAt)),
		slog.String("recorded_at", stamp(now)), slog.String("create_called_at", stamp(time.Now())))
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// created writes the VM into the record. If that fails, the create is repeated, which returns
// the same VM; if the agent registers first, a sweep adopts the VM.
func (l *launcher) created(ctx context.Context, x *launch, vm provider.VM, asked time.Time) (createResult, error) {
	now := time.Now()
	mark(l.schedule, now, l.observed.See(now, observe.Answer{Record: x.record, VM: vm, Found: true, Asked: asked})...)
	if err := l.records.adopt(ctx, x.record.ID, vm); err != nil {
		return unnoted, err
	}
	return made, nil
}

// abandon writes a tombstone of an instance that was not created because of err.
func (l *launcher) abandon(ctx context.Context, x *launch, err error) (createResult, error) {
	if ctx.Err() != nil {
		return unclear, err
	}
	s := step{to: fleet.Deleted, reason: plan.ReasonCreateFailed, basis: func() string { return problems.Text(err) }, also: failure(err)}
	if e := l.records.move(ctx, x.record.ID, s); e != nil {
		return unclear, errors.Join(err, e)
	}
	return unmade, err
}

// unrecorded returns the group's creates whose record write failed and is due for a retry,
// and drops those that need none.
func (l *launcher) unrecorded(v plan.View) []*launch {
	wanted, forgot := l.stillWanted(v)
	if forgot {
		l.schedule.Mark(v.Group.Key) // the view still includes them
	}
	return slices.DeleteFunc(wanted, func(x *launch) bool {
		due := x.retryAt
		if v.Pace.NotBefore.After(due) {
			due = v.Pace.NotBefore
		}
		if due.After(v.Now) {
			l.schedule.MarkAt(v.Group.Key, due)
		}
		return due.After(v.Now)
	})
}

// stillWanted returns the group's creates that wait to retry their record write and that the
// group still needs, the oldest first. Those whose record exists after all are dropped. One
// that is not needed is kept until a relist does not show its record, since the record may
// exist; if the group needs another instance meanwhile, this one is used.
func (l *launcher) stillWanted(v plan.View) (wanted []*launch, forgot bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var waiting []*launch
	for id, x := range l.begun {
		if x.active || x.group.Key != v.Group.Key {
			continue
		}
		if _, ok := l.records.get(id); ok {
			delete(l.begun, id)
			forgot = true
			continue
		}
		waiting = append(waiting, x)
	}
	if len(waiting) == 0 {
		return nil, forgot
	}
	slices.SortFunc(waiting, func(a, b *launch) int { return strings.Compare(string(a.record.ID), string(b.record.ID)) })
	keep := min(len(waiting), missingWithout(v, waiting))
	for _, x := range waiting[keep:] {
		if x.unlisted {
			delete(l.begun, x.record.ID)
			l.starts.Failed(x.record.ID, errUnneeded)
			forgot = true
		}
	}
	return waiting[:keep], forgot
}

// errUnneeded ends the start of an instance that was never recorded.
var errUnneeded = errors.New("the group does not need it any more")

// missingWithout returns how many creates plan.Next would decide without those in begun.
func missingWithout(v plan.View, begun []*launch) int {
	ids := make(map[fleet.InstanceID]bool, len(begun))
	for _, x := range begun {
		ids[x.record.ID] = true
	}
	v.Pace = plan.Pace{} // a back-off does not make them unneeded
	v.Instances = slices.DeleteFunc(slices.Clone(v.Instances), func(i plan.Instance) bool { return ids[i.ID] })
	missing := 0
	for _, a := range plan.Next(v).Actions {
		if a.Kind == plan.Create {
			missing++
		}
	}
	return missing
}

// relisted handles the end of a listing of the store that began at the given time.
func (l *launcher) relisted(began time.Time) {
	l.mu.Lock()
	var keys []fleet.GroupKey
	for id, x := range l.begun {
		if _, ok := l.records.get(id); !ok && !x.active && x.triedAt.Before(began) {
			x.unlisted = true
			keys = append(keys, x.group.Key)
		}
	}
	l.mu.Unlock()
	l.schedule.Mark(keys...)
	l.subnets.Forget(time.Now())
}
