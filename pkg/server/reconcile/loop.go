package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/balance"
	"github.com/nstance/nstance/pkg/server/plan"
)

// Loop acts for one term of leadership. Its methods are safe for concurrent use
// and return at once, but for Run; before Run and after it they only remember.
type Loop struct {
	*term
	launcher *launcher
	poller   *poller
	sweeper  *sweeper
	balancer *balance.Balancer
	edits    edits

	passing  sync.Mutex   // held while groups are decided about; no part waits for it
	passTook atomic.Int64 // the last pass, in nanoseconds

	resumable map[fleet.InstanceID]bool // pending records that were there at takeover; of the deciding goroutine
}

// New returns a loop for one term.
func New(cfg Config) (*Loop, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	t := newTerm(cfg)
	l := &Loop{term: t, launcher: newLauncher(t), poller: newPoller(t), resumable: map[fleet.InstanceID]bool{}}
	l.edits.of = map[fleet.GroupKey]*attempts{}
	l.sweeper = newSweeper(t, l.launcher)
	l.balancer = newBalancer(t)
	return l, nil
}

// Run takes over and then acts until ctx ends, or until an error says that the
// term is over, which it returns. It returns when everything that it started has
// ended. A Loop runs once.
func (l *Loop) Run(ctx context.Context) error {
	term, end := context.WithCancelCause(provider.WithGuard(ctx, l.cfg.Fence.Check))
	l.end = end
	if l.takeOver(term) {
		l.workers.Go(func() { l.sweeper.run(term) })
		l.workers.Go(func() { l.balancer.Run(term) })
		if w, ok := l.cfg.Provider.(provider.Watcher); ok {
			l.workers.Go(func() { l.sweeper.watch(term, w) })
		}
		l.drive(term)
	}
	end(nil)
	l.workers.Wait()
	select {
	case <-ctx.Done():
		return nil
	default:
		return fmt.Errorf("lead the shard: %w", context.Cause(term))
	}
}

// takeOver makes the view whole: nothing is decided before the provider has
// listed its VMs once. It reports whether that came about.
func (l *Loop) takeOver(ctx context.Context) bool {
	for n := 1; ; n++ {
		asked := time.Now()
		vms, err := l.cloud.list(ctx)
		if err == nil {
			l.begin(ctx, vms, asked)
			return true
		}
		l.fail(ctx, because(ReasonProvider, fmt.Errorf("list the VMs at takeover: %w", err)), fleet.GroupKey{}, "")
		if retry.Wait(ctx, stepBackoff().Delay(n)) != nil {
			return false
		}
	}
}

// begin starts the term's decisions from the provider's first list.
func (l *Loop) begin(ctx context.Context, vms []provider.VM, asked time.Time) {
	records := l.cfg.Ledger.Instances()
	for _, r := range records {
		if r.Phase == fleet.Pending {
			l.resumable[r.ID] = true
		}
	}
	l.observed.takenOver(time.Now())
	orphans, suspects := l.sweeper.begin(ctx, records, vms, asked)
	l.markAll()
	l.log.Info("took over", slog.Int("records", len(records)), slog.Int("vms", len(vms)),
		slog.Int("unrecorded_vms", orphans), slog.Int("suspects", suspects))
	l.workers.Go(func() { l.launcher.subnets.ask(ctx, fleet.Group{}) }) // so that the first create need not wait for it
}

// drive is the deciding goroutine.
func (l *Loop) drive(ctx context.Context) {
	for ctx.Err() == nil {
		next, idle := l.step(ctx)
		if !idle {
			continue
		}
		due, stop := after(next)
		select {
		case <-ctx.Done():
		case <-l.schedule.woken:
		case <-due:
		}
		stop()
	}
}

// step does what is due and at most one pass. It returns when the next thing is
// due (zero: nothing is), and whether there is nothing left to do until then.
func (l *Loop) step(ctx context.Context) (time.Time, bool) {
	l.passing.Lock()
	defer l.passing.Unlock()
	now := time.Now()
	l.poller.ask(ctx, now)
	suspended := l.sweeper.suspended()
	if suspended {
		l.launcher.clear() // whatever lifts it marks every group
	}
	if key, ok := l.schedule.take(now); ok && !suspended {
		l.pass(ctx, key, now)
	}
	l.launcher.dispatch(ctx, now)
	next, idle := l.schedule.next()
	return sooner(next, sooner(l.poller.next(), l.launcher.next())), idle
}

// pass decides about one group and sets the workers going.
func (l *Loop) pass(ctx context.Context, key fleet.GroupKey, now time.Time) {
	l.schedule.passing(key)
	v, defined := l.view(key, now)
	l.apply(ctx, v, plan.Next(v), defined)
	l.balance(ctx, v, defined)
	l.passTook.Store(int64(time.Since(now)))
}

// apply hands out what was decided about one group.
func (l *Loop) apply(ctx context.Context, v plan.View, actions []plan.Action, defined bool) {
	key := v.Group.Key
	unrecorded := l.launcher.unrecorded(v)
	var creates, resumes []*launch
	for _, a := range actions {
		switch a.Kind {
		case plan.Create:
			creates = append(creates, &launch{group: v.Group, decidedAt: v.Now})
		case plan.Resume:
			resumes = append(resumes, &launch{group: v.Group, decidedAt: v.Now, record: fleet.Instance{ID: a.ID}})
		case plan.Settle:
			l.edit(ctx, key, v.Now, func() error { return l.cfg.Groups.Settle(ctx, key, a.IDs) })
		case plan.Forget:
			if defined {
				l.edit(ctx, key, v.Now, func() error { return l.cfg.Groups.Forget(ctx, key) })
			}
		case plan.Wake:
			l.schedule.markAt(key, a.At)
		default:
			l.work(ctx, key, a.ID, v.Now, func() error { return l.leave(ctx, a) })
		}
	}
	for n, id := range l.observed.replace(v.Instances, len(creates)) {
		creates[n].replaces = id
	}
	l.launcher.set(key, slices.Concat(unrecorded, creates, resumes))
}

// Kick asks for a pass of the given groups; of all groups when none is given. It
// is called when a group, or what is wanted as a whole, has changed.
func (l *Loop) Kick(keys ...fleet.GroupKey) {
	if len(keys) == 0 {
		l.markAll()
	}
	l.schedule.mark(keys...)
}

// edits keeps the edits of the groups themselves apart: one at a time for each.
type edits struct {
	mu sync.Mutex
	of map[fleet.GroupKey]*attempts
}

// begin reports whether an edit may begin, or else when.
func (e *edits) begin(key fleet.GroupKey, now time.Time) (ok bool, notBefore time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.of[key]
	if a == nil {
		a = &attempts{}
		e.of[key] = a
	}
	if a.isBusy(now) {
		if !a.busy {
			notBefore = a.quietUntil
		}
		return false, notBefore
	}
	a.busy = true
	return true, notBefore
}

func (e *edits) finish(key fleet.GroupKey, err error, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.of[key].finish(err, now)
}

// edit has a worker edit the group itself.
func (l *Loop) edit(ctx context.Context, key fleet.GroupKey, now time.Time, edit func() error) {
	ok, notBefore := l.edits.begin(key, now)
	if !ok {
		if !notBefore.IsZero() {
			l.schedule.markAt(key, notBefore)
		}
		return
	}
	l.workers.Go(func() {
		err := edit()
		l.edits.finish(key, err, time.Now())
		l.schedule.mark(key)
		l.changed(key, "")
		if err != nil {
			l.fail(ctx, because(ReasonStorage, fmt.Errorf("edit group %s: %w", key, err)), key, "")
		}
	})
}

// after returns a channel that delivers at t, never for the zero time, and a
// function that gives the timer up.
func after(t time.Time) (<-chan time.Time, func()) {
	if t.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(time.Until(t))
	return timer.C, func() { timer.Stop() }
}
