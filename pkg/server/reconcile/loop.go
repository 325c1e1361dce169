package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/balance"
	"github.com/nstance/nstance/pkg/server/plan"
)

// Loop acts for one term of leadership. Its methods are safe for concurrent use
// and return at once, but for Run; before Run and after it they only remember.
type Loop struct {
	cfg     Config
	log     *slog.Logger
	limiter *rate.Limiter
	tuning  atomic.Pointer[Tuning]
	retuned chan struct{} // holds at most one: the sweep's interval may have changed
	deletes *slots        // for the provider's deletes
	writes  *slots        // for the store writes that are not part of a create
	woken   chan struct{} // holds at most one: there is something to do
	workers sync.WaitGroup

	mu        sync.Mutex
	end       context.CancelCauseFunc // of the term; nil before Run
	takeover  time.Time
	resumable map[fleet.InstanceID]bool // pending records that were there at takeover

	tracks    map[fleet.InstanceID]*track
	launching map[fleet.InstanceID]*launch // begun, and perhaps not in the ledger yet
	backoffs  map[fleet.GroupKey]*backoff
	errands   map[fleet.GroupKey]*pace // edits of the groups themselves
	queue     queue
	creating  int
	createAt  time.Time // when the rate allows the next create

	dirty  []fleet.GroupKey
	marked map[fleet.GroupKey]bool
	wakes  map[fleet.GroupKey]time.Time // one due moment per group

	urgent, polls asker
	statusFailing bool
	passTook      time.Duration                       // the last pass
	nextSuspect   fleet.InstanceID                    // where the next sweep goes on asking
	spared        map[fleet.InstanceID]fleet.GroupKey // VMs that only a malformed object speaks of
	told          map[string]bool                     // by key: malformed objects that were reported
	orphans       orphanage

	subnets   *subnets // has a lock of its own
	balancer  *balance.Balancer
}

// New returns a loop for one term.
func New(cfg Config) (*Loop, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	l := &Loop{
		cfg:       cfg,
		log:       cfg.Logger,
		limiter:   rate.NewLimiter(cfg.CreateRate.limit(), cfg.CreateRate.Burst),
		deletes:   newSlots(cfg.CreateRate.Concurrency),
		writes:    newSlots(maxWrites),
		retuned:   make(chan struct{}, 1),
		woken:     make(chan struct{}, 1),
		resumable: map[fleet.InstanceID]bool{},
		tracks:    map[fleet.InstanceID]*track{},
		launching: map[fleet.InstanceID]*launch{},
		backoffs:  map[fleet.GroupKey]*backoff{},
		errands:   map[fleet.GroupKey]*pace{},
		queue:     newQueue(),
		marked:    map[fleet.GroupKey]bool{},
		wakes:     map[fleet.GroupKey]time.Time{},
		urgent:    newAsker(),
		polls:     newAsker(),
		orphans:   newOrphanage(),
		subnets:   newSubnets(cfg.Provider),
	}
	t := cfg.tuning()
	l.tuning.Store(&t)
	l.balancer = l.newBalancer()
	return l, nil
}

// maxWrites bounds the store writes under way, so that the end of a large group
// does not open a connection per instance.
const maxWrites = 32

// Run takes over and then acts until ctx ends, or until an error says that the
// term is over, which it returns. It returns when everything that it started has
// ended. A Loop runs once.
func (l *Loop) Run(ctx context.Context) error {
	term, end := context.WithCancelCause(provider.WithGuard(ctx, l.cfg.Fence.Check))
	l.mu.Lock()
	l.end = end
	l.mu.Unlock()
	if l.takeOver(term) {
		l.workers.Go(func() { l.sweepAll(term) })
		l.workers.Go(func() { l.balancer.Run(term) })
		if w, ok := l.cfg.Provider.(provider.Watcher); ok {
			l.workers.Go(func() { l.watch(term, w) })
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
		vms, err := l.list(ctx)
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
	c := compare(records, l.spokenFor(), vms)
	l.mu.Lock()
	for _, r := range records {
		if r.Phase == fleet.Pending {
			l.resumable[r.ID] = true
		}
	}
	l.takeover = time.Now()
	suspects := l.absorb(ctx, c, asked)
	l.spare(c.spared)
	l.orphans.lose(c.strays)
	problem := l.orphans.judge(c)
	l.markAll()
	l.mu.Unlock()
	l.log.Info("took over", slog.Int("records", len(records)), slog.Int("vms", len(vms)),
		slog.Int("unrecorded_vms", len(c.strays)), slog.Int("suspects", len(suspects)))
	l.tell(problem)
	l.tellMalformed()
	l.workers.Go(func() { l.confirm(ctx, suspects) })
	l.workers.Go(func() { l.askRoom(ctx, fleet.Group{}) }) // so that the first create need not wait for it
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
		case <-l.woken:
		case <-due:
		}
		stop()
	}
}

// step does what is due and at most one pass. It returns when the next thing is
// due (zero: nothing is), and whether there is nothing left to do until then.
func (l *Loop) step(ctx context.Context) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.ask(ctx, &l.urgent, now)
	l.ask(ctx, &l.polls, now)
	for key, at := range l.wakes {
		if !at.After(now) {
			delete(l.wakes, key)
			l.mark(key)
		}
	}
	if len(l.dirty) > 0 {
		key := l.dirty[0]
		l.dirty = l.dirty[1:]
		delete(l.marked, key)
		l.pass(ctx, key, now)
	}
	l.dispatch(ctx, now)
	return l.nextDue(), len(l.dirty) == 0
}

// pass decides about one group and sets the workers going.
func (l *Loop) pass(ctx context.Context, key fleet.GroupKey, now time.Time) {
	if l.suspended() {
		l.queue.drop(key)
		return // whatever lifts it marks every group
	}
	delete(l.wakes, key)
	v, defined := l.view(key, now)
	l.apply(ctx, v, plan.Next(v), defined)
	l.balance(ctx, v, defined)
	l.passTook = time.Since(now)
}

// wakeAt asks for another pass of a group at t, if none is to come sooner.
func (l *Loop) wakeAt(key fleet.GroupKey, t time.Time) {
	if old, ok := l.wakes[key]; !ok || t.Before(old) {
		l.wakes[key] = t
	}
}

func (l *Loop) nextDue() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, at := range l.wakes {
		sooner(at)
	}
	sooner(l.urgent.next())
	sooner(l.polls.next())
	sooner(l.createAt)
	return next
}

// Kick asks for a pass of the given groups; of all groups when none is given. It
// is called when a group, or what is wanted as a whole, has changed.
func (l *Loop) Kick(keys ...fleet.GroupKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(keys) == 0 {
		l.markAll()
	}
	for _, key := range keys {
		l.mark(key)
	}
}

func (l *Loop) mark(key fleet.GroupKey) {
	if !l.marked[key] {
		l.marked[key] = true
		l.dirty = append(l.dirty, key)
	}
	l.signal()
}

// markAll marks every group that is defined or has records.
func (l *Loop) markAll() {
	for _, key := range l.cfg.Groups.Keys() {
		l.mark(key)
	}
	for _, i := range l.cfg.Ledger.Instances() {
		l.mark(i.GroupKey())
	}
}

func (l *Loop) signal() {
	select {
	case l.woken <- struct{}{}:
	default: // it knows already
	}
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
