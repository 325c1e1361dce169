package reconcile

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/plan"
)

// createBackoff is for a group whose creates fail.
func createBackoff() retry.Backoff { return retry.Backoff{First: time.Second, Limit: 5 * time.Minute} }

// launcher makes instances: those that were decided wait in its queue until the
// shard's rate and concurrency allow them, and a group whose creates fail waits
// longer and longer. One goroutine decides what is queued and begun. Everything
// else is safe for concurrent use.
type launcher struct {
	*term
	limiter *rate.Limiter
	subnets *subnets

	createAt time.Time // when the rate allows the next create; of the deciding goroutine

	mu       sync.Mutex
	queue    queue
	begun    map[fleet.InstanceID]*launch // and perhaps not in the ledger yet
	failing  map[fleet.GroupKey]*failing
	creating int
}

// launch is one create, from decision to outcome.
type launch struct {
	group     fleet.Group
	record    fleet.Instance // only the id when a recorded create is resumed; zero: an instance to be made
	decidedAt time.Time
	began     time.Time
	active    bool      // a worker is on it
	counted   bool      // it counts as a create under way
	failures  int       // of writing the record
	retryAt   time.Time // when the record is tried again whose write failed
	triedAt   time.Time // when that write ended
	unlisted  bool      // a relist that began since did not show the record

	replaces fleet.InstanceID // the lost instance it stands in for; empty: none
	loss     loss
}

// queue holds the creates that were decided and have not begun. Every pass of a
// group replaces what the group has here, so nothing begins that the latest
// decision does not want.
type queue struct {
	waiting map[fleet.GroupKey][]*launch
	turn    []fleet.GroupKey // the groups in waiting, whose turn is next first
}

func newQueue() queue { return queue{waiting: map[fleet.GroupKey][]*launch{}} }

func (q *queue) set(key fleet.GroupKey, launches []*launch) {
	if len(launches) == 0 {
		q.drop(key)
		return
	}
	if _, ok := q.waiting[key]; !ok {
		q.turn = append(q.turn, key)
	}
	q.waiting[key] = launches
}

func (q *queue) drop(key fleet.GroupKey) {
	delete(q.waiting, key)
	q.turn = slices.DeleteFunc(q.turn, func(k fleet.GroupKey) bool { return k == key })
}

// take returns the next create: replacements of what was lost before all
// others, and otherwise one group after the other, so that a large group does
// not keep a small one waiting.
func (q *queue) take() *launch {
	n := slices.IndexFunc(q.turn, func(k fleet.GroupKey) bool { return q.waiting[k][0].replaces != "" })
	key := q.turn[max(n, 0)]
	x := q.waiting[key][0]
	rest := q.waiting[key][1:]
	q.drop(key)
	q.set(key, rest)
	return x
}

func newLauncher(t *term) *launcher {
	return &launcher{
		term: t, limiter: rate.NewLimiter(t.cfg.CreateRate.limit(), t.cfg.CreateRate.Burst), subnets: newSubnets(t),
		queue: newQueue(), begun: map[fleet.InstanceID]*launch{}, failing: map[fleet.GroupKey]*failing{},
	}
}

// retune goes over to another rate. What has not begun is to be decided anew.
func (l *launcher) retune(r CreateRate) {
	l.limiter.SetLimit(r.limit())
	l.limiter.SetBurst(r.Burst)
	l.clear()
}

// set says what a group's creates are that have not begun, after a view. When a
// create has failed or worked since that was made, which marks the group, they
// are decided anew instead.
func (l *launcher) set(v plan.View, launches []*launch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.notBefore(v.Group).Equal(v.Pace.NotBefore) {
		launches = nil
	}
	l.queue.set(v.Group.Key, launches)
}

// clear forgets all creates that have not begun.
func (l *launcher) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = newQueue()
}

// dispatch begins the creates that the shard's rate and concurrency allow.
func (l *launcher) dispatch(ctx context.Context, now time.Time) {
	for ctx.Err() == nil {
		x := l.take(now)
		if x == nil {
			return
		}
		l.start(ctx, x, now)
	}
}

// take returns the create that may begin now; nil: none.
func (l *launcher) take(now time.Time) *launch {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.createAt = time.Time{}
	if l.creating >= l.tuning.Load().CreateRate.Concurrency || len(l.queue.turn) == 0 {
		return nil
	}
	r := l.limiter.ReserveN(now, 1)
	if wait := r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		l.createAt = now.Add(wait)
		return nil
	}
	if at, ok := l.cloud.mutations.claim(now); !ok {
		r.CancelAt(now)
		l.createAt = at
		return nil
	}
	return l.queue.take()
}

// start begins one create.
func (l *launcher) start(ctx context.Context, x *launch, now time.Time) {
	x.began = now
	switch {
	case x.record.ID == "":
		id, err := l.cfg.NewID(x.group.Kind, now)
		if err != nil {
			l.createFailed(x.group, now, now)
			l.schedule.mark(x.group.Key)
			l.workers.Go(func() { l.fail(ctx, because(ReasonBuild, err), x.group.Key, "") })
			return
		}
		x.record = x.newRecord(id, now)
	case !l.underWay()[x.record.ID]: // it is resumed
		r, ok := l.cfg.Ledger.Get(x.record.ID)
		if !ok || r.Phase != fleet.Pending {
			return // it has moved on since the decision
		}
		x.record = r
	}
	if !l.observed.beginCreate(x, now) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	x.active, x.counted = true, true
	l.begun[x.record.ID] = x
	l.creating++
	l.workers.Go(func() { l.launch(ctx, x) })
}

// newRecord is the record of an instance that is about to be asked for.
func (x *launch) newRecord(id fleet.InstanceID, now time.Time) fleet.Instance {
	at := now.UTC()
	return fleet.Instance{
		ID: id, Tenant: x.group.Key.Tenant, Group: x.group.Key.Name,
		Phase: fleet.Pending, CreatedAt: at,
		Provider: fleet.ProviderRef{InstanceType: x.group.InstanceType, CreateAttemptedAt: &at},
		Hashes:   x.group.Hashes,
	}
}

// underWay returns the ids of the creates that have begun and whose outcome is
// to come.
func (l *launcher) underWay() map[fleet.InstanceID]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := make(map[fleet.InstanceID]bool, len(l.begun))
	for id := range l.begun {
		ids[id] = true
	}
	return ids
}

// of returns the records of a group's creates that have begun, and when its
// next create may begin.
func (l *launcher) of(g fleet.Group) (begun []fleet.Instance, notBefore time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.begun {
		if x.group.Key == g.Key {
			begun = append(begun, x.record)
		}
	}
	return begun, l.notBefore(g)
}

func (l *launcher) notBefore(g fleet.Group) (t time.Time) {
	if f := l.failing[g.Key]; f != nil && f.infra == g.Hashes.Infra {
		t = f.until
	}
	return t
}

// failing holds back the creates of one group after failures.
type failing struct {
	failures int
	since    time.Time // the last failure that counted
	until    time.Time
	infra    string // the group's hash when it failed: a change starts afresh
}

// createFailed counts a failed create that began at began. Creates that were
// under way together fail together, and count once.
func (l *launcher) createFailed(g fleet.Group, began, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.failing[g.Key]
	if f == nil || f.infra != g.Hashes.Infra {
		f = &failing{infra: g.Hashes.Infra}
		l.failing[g.Key] = f
	}
	if f.failures > 0 && !began.After(f.since) {
		return
	}
	f.failures++
	f.since = now
	f.until = now.Add(createBackoff().Delay(f.failures))
	l.queue.drop(g.Key) // what has not begun is decided anew once the wait is over
}

// release lets the next create begin.
func (l *launcher) release(x *launch) {
	l.mu.Lock()
	if x.counted {
		x.counted = false
		l.creating--
	}
	l.mu.Unlock()
	l.schedule.signal()
}

// ended takes a launch's outcome. An instance whose record may exist although
// its write failed keeps its place among those begun, and is tried again with
// the same id. The observation comes last: until then the instance is busy, and
// nothing is decided about it.
func (l *launcher) ended(x *launch, out outcome, err error, now time.Time) {
	l.release(x)
	if out == putOff {
		l.takeBack(x, err, now)
		return
	}
	// What an on-demand instance comes to says nothing about the group's
	// creates: it may have been asked for with another instance type. Nor does
	// the store's failure.
	if (out == unclear || out == unmade) && !x.record.OnDemand {
		l.createFailed(x.group, x.began, now)
	}
	l.mu.Lock()
	if (out == made || out == unnoted) && !x.record.OnDemand {
		delete(l.failing, x.group.Key)
	}
	x.active = false
	if out == unrecorded {
		x.failures++
		x.retryAt = now.Add(stepBackoff().Delay(x.failures))
		x.triedAt, x.unlisted = now, false
	} else {
		delete(l.begun, x.record.ID)
	}
	l.mu.Unlock()
	l.observed.with(x.record.ID, func(b *observation) {
		b.busy = false
		b.note(err, now)
		if out != unmade {
			b.failures++
		}
		switch out {
		case made:
			b.failures, b.retryAt = 0, time.Time{}
		case unnoted:
			b.retryAt = now.Add(stepBackoff().Delay(b.failures))
		case unclear:
			b.retryAt = now.Add(createBackoff().Delay(b.failures))
		default:
		}
	})
	if out == made && x.replaces == "" {
		l.schedule.markSoon(now, x.group.Key)
		return
	}
	l.schedule.mark(x.group.Key)
}
