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
	witness  *witness
	balancer *balance.Balancer
	surges   *surges
	regroup  atomic.Bool // which groups there are is to be counted anew

	deletions *deletions

	passing sync.Mutex // held while groups are decided about; no part waits for it

	resumable resumable       // of the deciding goroutine
	viewed    []plan.Instance // the room of the last view, for the next; the same
}

// New returns a loop for one term.
func New(cfg Config) (*Loop, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	t := newTerm(cfg)
	l := &Loop{
		term: t, launcher: newLauncher(t), poller: newPoller(t), witness: &witness{term: t},
		surges: newSurges(), resumable: resumable{}, deletions: newDeletions(),
	}
	l.regroup.Store(true)
	l.sweeper = newSweeper(t, l.launcher, l.poller, l.witness)
	l.balancer = newBalancer(t)
	return l, nil
}

// Run takes over and then acts until ctx ends, or until an error says that the
// term is over, which it returns. It returns when everything that it started
// has ended. A Loop runs once.
func (l *Loop) Run(ctx context.Context) error {
	term, end := context.WithCancelCause(provider.WithGuard(ctx, l.cfg.Fence.Check))
	l.end = end
	if l.takeOver(term) {
		l.workers.Go(func() { l.sweeper.run(term) })
		l.workers.Go(func() { l.balancer.Run(term) })
		if w, ok := provider.WatcherOf(l.cfg.Provider); ok {
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
	if err := l.sweeper.recall(ctx, vms); err != nil { // no VM is an orphan yet, each is looked for again
		l.fail(ctx, err, fleet.GroupKey{}, "")
	}
	records := l.cfg.Ledger.Instances()
	for _, r := range records {
		if r.Phase == fleet.Pending {
			l.resumable.add(r)
		}
	}
	now := time.Now()
	l.takeover.Store(&now)
	l.observed.judged(l.pacing.seed(records, now))
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
	calmAt := l.cloud.calm(now, l.calmed)
	l.poller.ask(ctx, now)
	before := l.witness.last
	held, until := l.witness.look(now)
	if l.witness.last != before {
		l.launcher.clear() // it was decided by another verdict
	}
	if held || l.sweeper.suspended() { // whatever lifts that marks every group
		l.launcher.clear()
		return sooner(sooner(l.poller.next(), until), calmAt), true
	}
	if l.regroup.Swap(false) {
		l.countGroups()
	}
	if key, ok := l.schedule.take(now); ok && !l.pass(ctx, key, now) {
		return now, false
	}
	l.launcher.dispatch(ctx, now)
	l.cloud.removes.next(ctx) // more of them may be allowed now
	next, idle := l.schedule.next()
	next = sooner(sooner(next, until), calmAt)
	return sooner(next, sooner(l.poller.next(), l.launcher.createAt)), idle
}

// pass decides about one group and sets the workers going, unless what the absence of
// VMs amounts to has changed meanwhile: then every group is marked again.
func (l *Loop) pass(ctx context.Context, key fleet.GroupKey, now time.Time) bool {
	before := l.witness.last
	v, defined := l.view(key, now)
	if held, _ := l.witness.look(now); held || l.witness.last != before { // since the last look, and the view may show why
		l.launcher.clear()
		return false
	}
	d := plan.Next(v)
	l.schedule.mark(l.surges.decided(v.Group, defined, d, l.tuning.Load().MaxSurge)...)
	l.apply(ctx, v, d.Actions, defined)
	l.balance(ctx, v, defined)
	l.watchDeletions(key, now)
	if g, _ := l.cfg.Groups.Group(key); g.Size == 0 && defined || !defined && len(v.Instances) == 0 {
		l.pacing.drop(key) // nothing is to be created
	} else if d.Content {
		l.pacing.content(v.Group)
	}
	l.schedule.passTook.Store(int64(time.Since(now)))
	return true
}

// apply hands out what was decided about one group.
func (l *Loop) apply(ctx context.Context, v plan.View, actions []plan.Action, defined bool) {
	key := v.Group.Key
	l.judge(v, actions)
	unrecorded := l.launcher.unrecorded(v)
	var creates, resumes []*launch
	for _, a := range actions {
		switch a.Kind {
		case plan.Create:
			creates = append(creates, &launch{group: v.Group, decidedAt: v.Now})
		case plan.Resume:
			i := find(v.Instances, a.ID)
			resumes = append(resumes, &launch{
				group: v.Group, decidedAt: v.Now, record: fleet.Instance{ID: a.ID}, onDemand: i.OnDemand, owed: i.Owed,
			})
		case plan.Settle:
			l.work(ctx, key, "", v.Now, func() error { return l.cfg.Groups.Settle(ctx, key, a.IDs) })
		case plan.Forget:
			if defined {
				l.work(ctx, key, "", v.Now, func() error { return l.cfg.Groups.Forget(ctx, key) })
			}
		case plan.Wake:
			l.schedule.markAt(key, a.At)
		default:
			l.work(ctx, key, a.ID, v.Now, func() error { return l.leave(ctx, a) })
		}
	}
	lost := l.observed.replace(v.Instances, len(creates))
	for n, i := range lost {
		creates[n].replaces, creates[n].owed = i.ID, i.Owed
	}
	l.launcher.set(v, slices.Concat(unrecorded, creates[:len(lost)], resumes, creates[len(lost):]))
}

// judge takes over which instances a decision ends that have not settled. When that
// changes the pace, the group is decided anew.
func (l *Loop) judge(v plan.View, actions []plan.Action) {
	if failed := l.observed.stillborn(v, actions); len(failed) > 0 {
		l.pacing.cameToNothing(v.Group, failed, l.observed.living(v.Instances, v.Group, v.Now, failed))
	}
	if !l.pacing.isPace(v) {
		l.schedule.mark(v.Group.Key)
	}
}

// Kick asks for a pass of the given groups; of all groups when none is given.
// It is called when a group, or what is wanted as a whole, has changed.
func (l *Loop) Kick(keys ...fleet.GroupKey) {
	if len(keys) == 0 {
		l.regroup.Store(true)
		l.markAll()
	}
	l.schedule.mark(keys...)
}

// Reconfigure goes over to another tuning and, by swap, to another wanted
// state. swap runs between two passes, so that no decision sees half of it; it
// must be quick and must not call the loop. What was decided and has not begun
// is decided anew, for every group. Creates and deletes under way are not
// touched: where fewer are allowed at one time, the next begins when enough
// have ended. A tuning that is not valid is refused, and swap does not run.
func (l *Loop) Reconfigure(t Tuning, swap func()) error {
	if err := t.check(); err != nil {
		return err
	}
	l.passing.Lock()
	defer l.passing.Unlock()
	swap()
	l.tuning.Store(&t)
	l.launcher.retune(t.CreateRate)
	l.cloud.retune(t.CreateRate)
	select {
	case l.sweeper.retuned <- struct{}{}:
	default: // it is about to look
	}
	l.regroup.Store(true)
	l.markAll()
	l.schedule.mark(l.pacing.failed()...) // those that are no more are to be forgotten
	return nil
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
