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
	"github.com/nstance/nstance/pkg/provider/paced"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/balance"
	"github.com/nstance/nstance/pkg/server/deletions"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/pacing"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/schedule"
	"github.com/nstance/nstance/pkg/server/surge"
)

// Loop runs for one term of leadership. Its methods are safe for concurrent use and, except
// for Run and Update, return at once; before and after Run they only record events.
type Loop struct {
	cfg      Config
	log      *slog.Logger
	tuning   atomic.Pointer[Tuning]
	takeover atomic.Pointer[time.Time] // since when agents can connect; zero: not yet
	workers  sync.WaitGroup

	schedule  *schedule.Schedule
	observed  *observe.State
	cloud     *paced.Provider
	records   *records
	writeBack *writeBack
	steps     *steps
	certainty *certainty
	backoff   backoff
	pacer     *pacing.Pacer
	reports   *reporter

	launcher *launcher
	poller   *poller
	sweeper  *sweeper
	absence  *absenceCheck
	balancer *balance.Balancer
	surges   *surge.Budget
	regroup  atomic.Bool // the set of groups may have changed

	deletions *deletions.Tracker
	requests  requests

	passing sync.Mutex // held during passes; no part waits for it

	resumable resumable      // used by the deciding goroutine only
	joined    observe.Joined // of the last view, whose buffer the next one reuses; likewise
	planner   plan.Planner   // likewise
}

// New returns a loop for one term.
func New(cfg Config) (*Loop, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	l := &Loop{
		cfg: cfg, log: cfg.Logger, reports: newReporter(cfg),
		surges: surge.New(), resumable: resumable{}, deletions: deletions.New(),
	}
	l.schedule = schedule.New(l.allGroups)
	tuning := cfg.tuning()
	l.tuning.Store(&tuning)
	l.takeover.Store(&time.Time{})
	l.observed = observe.New(cfg.Ledger, provider.Consistent(cfg.Provider), time.Now())
	l.cloud = paced.New(paced.Config{
		Provider: cfg.Provider, Timeout: l.requestTimeout, Limits: limitsOf(cfg.CreateRate), Listing: cfg.Listing,
		Go: l.workers.Go, Began: l.throttled,
	})
	l.backoff = backoff{tuning: &l.tuning, uniform: cfg.Uniform}
	l.pacer = pacing.New(func(failures int) time.Duration { return l.backoff.draw(failures, longest) }, l.reports.creating)
	l.records = &records{ledger: cfg.Ledger, writes: newSlots(maxWrites), observed: l.observed, reports: l.reports, log: cfg.Logger}
	l.steps = &steps{observed: l.observed, schedule: l.schedule, reports: l.reports, workers: &l.workers}
	l.writeBack = &writeBack{
		certified: cfg.Certified, observed: l.observed, records: l.records, steps: l.steps, reports: l.reports,
	}
	l.launcher, l.poller, l.absence, l.certainty = newLauncher(l), newPoller(l), newAbsenceCheck(l), newCertainty(l)
	l.sweeper, l.balancer = newSweeper(l), newBalancer(l)
	l.regroup.Store(true)
	return l, nil
}

func (l *Loop) requestTimeout() time.Duration { return l.tuning.Load().RequestTimeout }

// desired returns the desired state of a group, with its key.
func (l *Loop) desired(key fleet.GroupKey) fleet.Group { return desired(l.cfg.Groups, key) }

func desired(groups Groups, key fleet.GroupKey) fleet.Group {
	g, _ := groups.Group(key)
	g.Key = key
	return g
}

// allGroups returns every group that is defined, and the group of each record.
func (l *Loop) allGroups() []fleet.GroupKey {
	keys := slices.Clone(l.cfg.Groups.Keys())
	for _, i := range l.cfg.Ledger.Instances() {
		keys = append(keys, i.GroupKey())
	}
	return keys
}

// subnetsOf returns the subnets of all groups.
func subnetsOf(groups Groups) (all []string) {
	for _, key := range groups.Keys() {
		all = append(all, desired(groups, key).Subnets...)
	}
	return all
}

// Run takes over and then acts until ctx ends, or until an error means that the term is over,
// which it returns. It waits for all its goroutines. A Loop runs once.
func (l *Loop) Run(ctx context.Context) error {
	term, end := context.WithCancelCause(provider.WithGuard(ctx, l.cfg.Fence.Check))
	l.reports.end = end
	if l.takeOver(term) {
		l.workers.Go(func() { l.sweeper.run(term, l.cfg.FirstSweep) })
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

// takeOver lists the provider's VMs, with retries, and starts the term: no decision is made
// before the first list. It reports false if ctx ended first.
func (l *Loop) takeOver(ctx context.Context) bool {
	for n := 1; ; n++ {
		vms, asked, err := listFirst(ctx, n, l.cfg.First, l.cloud)
		if err == nil {
			l.start(ctx, vms, asked)
			return true
		}
		l.reports.fail(ctx, problems.Because(problems.ReasonProvider, fmt.Errorf("list the VMs at takeover: %w", err)), fleet.GroupKey{}, "")
		if retry.Wait(ctx, stepBackoff().Delay(n)) != nil {
			return false
		}
	}
}

// listFirst makes the nth attempt of the first list: the first may have been started ahead.
func listFirst(ctx context.Context, n int, ahead *paced.Listed, cloud *paced.Provider) ([]provider.VM, time.Time, error) {
	if ahead != nil && n == 1 {
		return ahead.Wait()
	}
	asked := time.Now()
	vms, err := cloud.List(ctx)
	return vms, asked, err
}

// start starts the term's decisions from the provider's first list.
func (l *Loop) start(ctx context.Context, vms []provider.VM, asked time.Time) {
	if err := l.sweeper.recall(ctx, vms); err != nil { // the next sweep retries
		l.reports.fail(ctx, err, fleet.GroupKey{}, "")
	}
	records := l.cfg.Ledger.Instances()
	for _, r := range records {
		if r.Phase == fleet.Pending {
			l.resumable.add(r)
		}
	}
	now := time.Now()
	l.takeover.Store(&now)
	l.observed.Judged(l.pacer.WarmUp(records, l.desired, l.cfg.Groups.Settings(), now))
	orphans, suspects := l.sweeper.start(ctx, records, vms, asked)
	l.schedule.MarkAll()
	l.tellTakeover(len(records), len(vms))
	l.log.Info("took over", slog.Int("records", len(records)), slog.Int("vms", len(vms)),
		slog.Int("unrecorded_vms", orphans), slog.Int("suspects", suspects))
	l.workers.Go(func() { l.launcher.subnets.Refresh(ctx) }) // so that the first create does not wait for it
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
		case <-l.schedule.Woken():
		case <-due:
		}
		stop()
	}
}

// step does what is due and at most one pass. It returns when the next step is due (zero: not
// without an event), and whether nothing is left to do until then.
func (l *Loop) step(ctx context.Context) (time.Time, bool) {
	l.passing.Lock()
	defer l.passing.Unlock()
	now := time.Now()
	calmAt, calm := l.cloud.Calm(now)
	if calm {
		l.calmed()
	}
	l.poller.sendDue(ctx, now)
	before := l.absence.last
	held, until := l.absence.check(now)
	if l.absence.last != before {
		l.launcher.clear() // the queue was decided under another verdict
	}
	if held || l.sweeper.suspended() { // every group is marked when this ends
		l.launcher.clear()
		return plan.Sooner(plan.Sooner(l.poller.next(), until), calmAt), true
	}
	if l.regroup.Swap(false) {
		l.countGroups()
	}
	if key, ok := l.schedule.Pop(now); ok && !l.pass(ctx, key, now) {
		return now, false
	}
	createAt := l.launcher.dispatch(ctx, now)
	l.cloud.Resume(ctx) // more deletes may be allowed now
	next, idle := l.schedule.Next()
	next = plan.Sooner(plan.Sooner(next, until), calmAt)
	return plan.Sooner(next, plan.Sooner(l.poller.next(), createAt)), idle
}

// pass decides about one group and starts the workers. It reports false and does nothing if the
// absence check holds the loop or its verdict changed: then every group is marked.
func (l *Loop) pass(ctx context.Context, key fleet.GroupKey, now time.Time) bool {
	before := l.absence.last
	v, defined := l.view(key, now)
	if held, _ := l.absence.check(now); held || l.absence.last != before { // the view may be newer than the last check
		l.launcher.clear()
		return false
	}
	taken := l.requests.take(v)
	d := l.planner.Next(v)
	l.schedule.Mark(l.surges.Decided(v.Group, defined, d, l.tuning.Load().MaxSurge)...)
	l.apply(ctx, v, l.certainty.only(ctx, v, d.Actions), taken, defined)
	l.balance(ctx, v, defined)
	l.watchDeletions(key, now)
	if l.cfg.Rotating != nil {
		l.cfg.Rotating(key, d.Rotation)
	}
	if g, _ := l.cfg.Groups.Group(key); g.Size == 0 && defined || !defined && len(v.Instances) == 0 {
		l.pacer.Drop(key) // no creates
	} else if d.Converged {
		l.pacer.Converged(v.Group)
	}
	l.schedule.Took(time.Since(now))
	return true
}

// apply hands out the actions for one group, and the requested changes from which some of them follow.
func (l *Loop) apply(ctx context.Context, v plan.View, actions []plan.Action, taken []*requested, defined bool) {
	l.judge(v, actions)
	unrecorded := l.launcher.unrecorded(v)
	h := &handout{loop: l, view: v, defined: defined, requested: leaving(taken, actions)}
	for _, a := range actions {
		actionOf(a).apply(ctx, h)
	}
	lost := l.observed.Replace(l.joined, len(h.creates))
	for n, i := range lost {
		h.creates[n].replaces, h.creates[n].immediate = i.ID, i.Immediate
	}
	h.explainCreates(lost)
	l.launcher.set(v, slices.Concat(unrecorded, h.creates[:len(lost)], h.resumes, h.creates[len(lost):]))
}

// judge records the instances that a decision removes before they settled: as failed, or since
// they did what they announced. If that changes the pace, the group is decided again.
func (l *Loop) judge(v plan.View, actions []plan.Action) {
	failed, done := l.observed.Ended(v, actions)
	if len(done) > 0 {
		l.pacer.Done(v.Group, done, v.Now)
	}
	if len(failed) > 0 {
		living := func() []plan.Life { return l.observed.Living(v.Instances, v.Group, v.Now, failed) }
		l.pacer.Died(v.Group, failed, v.Settings, living)
	}
	if !l.pacer.Pace(v.Group).Equal(v.Pace) {
		l.schedule.Mark(v.Group.Key)
	}
}

// countGroups updates surges with the defined groups.
func (l *Loop) countGroups() {
	sizes := map[fleet.GroupKey]int{}
	for _, key := range l.cfg.Groups.Keys() {
		if g, ok := l.cfg.Groups.Group(key); ok && !g.Removed {
			sizes[key] = max(0, g.Size)
		}
	}
	l.schedule.Mark(l.surges.Recount(sizes, l.tuning.Load().MaxSurge)...)
}

// CreatesFailing reports whether the creates of a group fail, with details.
func (l *Loop) CreatesFailing(key fleet.GroupKey) (fleet.CreatesFailing, bool) {
	return l.pacer.Condition(key, time.Now())
}

// Enqueue requests a pass of the given groups, or of all groups if none is given. It is called
// when a group, or the desired state as a whole, has changed.
func (l *Loop) Enqueue(keys ...fleet.GroupKey) {
	if len(keys) == 0 {
		l.regroup.Store(true)
		l.schedule.MarkAll()
	}
	l.schedule.Mark(keys...)
}

// Reconfigure applies a new tuning and calls swap to change the desired state. swap runs
// between two passes, so that no decision sees half of a change; it must be quick and must not
// call the loop. All groups are decided again; queued creates are dropped. Creates and deletes
// in progress are not affected: if fewer are allowed now, the next begins when enough have
// ended. If the tuning is invalid, Reconfigure returns an error and does not call swap.
func (l *Loop) Reconfigure(t Tuning, swap func()) error {
	if err := t.check(); err != nil {
		return err
	}
	l.passing.Lock()
	defer l.passing.Unlock()
	swap()
	l.tuning.Store(&t)
	l.launcher.retune(t.CreateRate)
	l.cloud.Retune(limitsOf(t.CreateRate))
	l.sweeper.deletes.resize(t.CreateRate.Concurrency)
	select {
	case l.sweeper.retuned <- struct{}{}:
	default: // already signalled
	}
	l.regroup.Store(true)
	l.schedule.MarkAll()
	l.schedule.Mark(l.pacer.Groups()...) // a pass drops those that are no longer defined
	return nil
}

// after returns a channel that delivers at t (never for the zero time), and a function that
// stops the timer.
func after(t time.Time) (<-chan time.Time, func()) {
	if t.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(time.Until(t))
	return timer.C, func() { timer.Stop() }
}
