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
	"github.com/nstance/nstance/pkg/server/plan"
)

// outcome is how a create ended.
type outcome int

const (
	unmade     outcome = iota // certainly nothing was made
	made                      // there is a VM
	unnoted                   // there is a VM, and the record does not name it yet
	unclear                   // there may be a VM: the same id again
	unrecorded                // the record may have been written; the provider was not asked
	putOff                    // the provider throttles: the same id again when its turn comes
)

// launch makes one instance: nonce, record, VM, in this order, so that after a
// crash anywhere in between the record says with which id to go on.
func (l *launcher) launch(ctx context.Context, x *launch) {
	out, err := l.carryOut(ctx, x)
	err = l.observed.refusal(x.record.ID, err)
	told := l.ended(x, out, err, time.Now())
	l.cfg.Changed(x.group.Key, x.record.ID)
	if !told {
		l.fail(ctx, err, x.group.Key, x.record.ID)
	}
}

func (l *launcher) carryOut(ctx context.Context, x *launch) (outcome, error) {
	_, recorded := l.cfg.Ledger.Get(x.record.ID)
	if err := l.confirmRecord(ctx, x); err != nil {
		return unclear, err
	}
	spec, err := l.cfg.Builder.Build(ctx, x.record, x.group)
	if err != nil {
		return unlessRecorded(recorded, x), because(ReasonBuild, fmt.Errorf("build instance %s: %w", x.record.ID, err))
	}
	// A create that was asked for already is repeated in the same subnet: there
	// the provider knows it again.
	x.repeated = recorded && askedFor(x.record)
	switch err := l.settle(ctx, x, recorded); {
	case err != nil && givenUp(x, err):
		return l.abandon(ctx, x, err)
	case err != nil:
		return unlessRecorded(recorded, x), err
	}
	if !recorded {
		if _, err := l.cfg.Ledger.Create(ctx, x.record); err != nil {
			return unrecorded, because(ReasonStorage, fmt.Errorf("record instance %s: %w", x.record.ID, err))
		}
		l.cfg.Changed(x.group.Key, x.record.ID) // it is one of the group's from here on, however long the provider takes
	}
	l.announce(x, time.Now())
	vm, asked, err := l.ask(ctx, x, spec)
	l.release(x) // what is left to do is a matter of the store
	if err == nil {
		return l.created(ctx, x, vm, asked)
	}
	return l.unanswered(ctx, x, recorded, err)
}

// unanswered is the outcome of a create that the provider did not answer with a VM.
func (l *launcher) unanswered(ctx context.Context, x *launch, recorded bool, err error) (outcome, error) {
	switch {
	case errors.Is(err, provider.ErrThrottled):
		return l.putOff(ctx, x, createProblem(x, err))
	case provider.Definite(err) && !recorded, givenUp(x, err):
		return l.abandon(ctx, x, createProblem(x, err))
	case provider.Definite(err) && !x.repeated:
		// Nothing that was asked for can still come, which the record is to say: it
		// waits to be made, and is not late to register meanwhile.
		return unclear, createProblem(x, errors.Join(err, l.unassign(ctx, x)))
	default:
		// That a repeated create was refused does not tell what became of the
		// first one, so the id and the attempt stay until it is answered, or the
		// provider says that the attempt is spent, or it gives up registering.
		return unclear, createProblem(x, err)
	}
}

// givenUp reports whether an on-demand instance ends with a create that failed.
// Another id is no way out, since whoever asked for it knows this one; so it is
// tried again, until it has waited for too long, unless the failure says that
// nothing was made and nothing will be.
func givenUp(x *launch, err error) bool {
	hopeless := errors.Is(err, provider.ErrInvalid) || errors.Is(err, provider.ErrUnauthorized) || errors.Is(err, provider.ErrUnsupported)
	return x.record.OnDemand && !x.repeated && hopeless
}

// unlessRecorded is the outcome of a create that never got as far as its record.
func unlessRecorded(recorded bool, x *launch) outcome {
	switch {
	case recorded:
		return unclear
	case !x.retryAt.IsZero():
		return unrecorded // an earlier attempt may have written it
	default:
		return unmade
	}
}

// announce accounts for a replacement at the moment its create is called: every
// time since the first sign of the loss.
func (l *launcher) announce(x *launch, now time.Time) {
	if x.replaces == "" {
		l.log.Info("create started", slog.String("instance", string(x.record.ID)), slog.String("group", x.group.Key.String()))
		return
	}
	l.log.Info("replacement started", slog.String("instance", string(x.record.ID)), slog.String("replaces", string(x.replaces)),
		slog.String("group", x.group.Key.String()), slog.String("sign", x.loss.sign),
		slog.String("why", l.observed.get(x.replaces).why), slog.String("disconnected_at", stamp(x.loss.at)),
		slog.String("status_at", stamp(x.loss.statusAt)), slog.String("decided_at", stamp(x.decidedAt)),
		slog.String("recorded_at", stamp(now)), slog.String("create_called_at", stamp(time.Now())))
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// created puts the VM into the record. When that fails the VM is there all the
// same: the create is repeated, which answers with the VM; if its agent
// registers first, a sweep adopts it.
func (l *launcher) created(ctx context.Context, x *launch, vm provider.VM, asked time.Time) (outcome, error) {
	l.observed.see(x.record, answer{vm: vm, found: true, asked: asked}, time.Now())
	if err := l.records.adopt(ctx, x.record.ID, vm); err != nil {
		return unnoted, err
	}
	return made, nil
}

// abandon leaves a tombstone of an instance that was never made, err being why.
func (l *launcher) abandon(ctx context.Context, x *launch, err error) (outcome, error) {
	if ctx.Err() != nil {
		return unclear, err
	}
	if e := l.records.move(ctx, x.record.ID, fleet.Deleted, plan.ReasonCreateFailed, failure(err)); e != nil {
		return unclear, errors.Join(err, e)
	}
	return unmade, err
}

// unrecorded returns the creates of the group whose record's write failed and
// is due again, and forgets those that need no second try.
func (l *launcher) unrecorded(v plan.View) []*launch {
	wanted, forgot := l.stillWanted(v)
	if forgot {
		l.schedule.mark(v.Group.Key) // the view still had them
	}
	return slices.DeleteFunc(wanted, func(x *launch) bool {
		due := x.retryAt
		if v.Pace.NotBefore.After(due) {
			due = v.Pace.NotBefore
		}
		if due.After(v.Now) {
			l.schedule.markAt(v.Group.Key, due)
		}
		return due.After(v.Now)
	})
}

// stillWanted returns the group's creates that wait for another try of their
// record and that the group would ask for now, the oldest first. Those whose
// record is there after all are forgotten. One that the group can do without
// keeps its place, since its record may be there, until a relist did not show
// it: another that is needed meanwhile is this one, and not one more.
func (l *launcher) stillWanted(v plan.View) (wanted []*launch, forgot bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var waiting []*launch
	for id, x := range l.begun {
		if x.active || x.group.Key != v.Group.Key {
			continue
		}
		if _, ok := l.cfg.Ledger.Get(id); ok {
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
			forgot = true
		}
	}
	return waiting[:keep], forgot
}

// missingWithout is how many creates a group would ask for if it had not begun these.
func missingWithout(v plan.View, begun []*launch) int {
	ids := make(map[fleet.InstanceID]bool, len(begun))
	for _, x := range begun {
		ids[x.record.ID] = true
	}
	v.Pace = plan.Pace{} // a wait is no reason to give them up
	v.Instances = slices.DeleteFunc(slices.Clone(v.Instances), func(i plan.Instance) bool { return ids[i.ID] })
	missing := 0
	for _, a := range plan.Next(v).Actions {
		if a.Kind == plan.Create {
			missing++
		}
	}
	return missing
}

// relisted takes over that a listing of the store, which began at the given
// time, has ended.
func (l *launcher) relisted(began time.Time) {
	l.mu.Lock()
	var keys []fleet.GroupKey
	for id, x := range l.begun {
		if _, ok := l.cfg.Ledger.Get(id); !ok && !x.active && x.triedAt.Before(began) {
			x.unlisted = true
			keys = append(keys, x.group.Key)
		}
	}
	l.mu.Unlock()
	l.schedule.mark(keys...)
	l.subnets.forget(time.Now())
}
