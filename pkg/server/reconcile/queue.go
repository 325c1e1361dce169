package reconcile

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/nstance/nstance/pkg/fleet"
)

// launcher makes instances: those that were decided wait in its queue until the
// shard's rate and concurrency allow them. One goroutine decides what is queued and
// begun. Everything else is safe for concurrent use.
type launcher struct {
	*term
	limiter *rate.Limiter
	probes  *rate.Limiter // of groups whose creates fail
	subnets *subnets

	createAt time.Time // when the rate allows the next create; of the deciding goroutine

	mu    sync.Mutex
	queue queue
	begun map[fleet.InstanceID]*launch // and perhaps not in the ledger yet
	under underWay
}

// launch is one create, from decision to outcome.
type launch struct {
	group     fleet.Group
	record    fleet.Instance // only the id when a recorded create is resumed; zero: an instance to be made
	onDemand  bool
	decidedAt time.Time
	began     time.Time
	active    bool      // a worker is on it
	counted   bool      // it counts as a create under way
	failures  int       // of writing the record
	retryAt   time.Time // when the record is tried again whose write failed
	triedAt   time.Time // when that write ended
	unlisted  bool      // a relist that began since did not show the record
	repeated  bool      // it was asked for before, and what came of that is not known

	replaces fleet.InstanceID // the lost instance it stands in for; empty: none
	owed     bool             // which had settled
	probe    bool             // of a group whose creates fail
	loss     loss
}

func newLauncher(t *term) *launcher {
	return &launcher{
		term: t, limiter: t.cfg.CreateRate.limiter(), probes: t.cfg.CreateRate.probeRate().limiter(), subnets: newSubnets(t),
		queue: newQueue(), begun: map[fleet.InstanceID]*launch{}, under: underWay{of: map[fleet.GroupKey]int{}},
	}
}

// retune goes over to another rate. What has not begun is to be decided anew.
func (l *launcher) retune(r CreateRate) {
	l.limiter.SetLimit(r.limit())
	l.limiter.SetBurst(r.Burst)
	l.probes.SetLimit(r.probeRate().limit())
	l.probes.SetBurst(r.probeRate().Burst)
	l.clear()
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

// start begins one create.
func (l *launcher) start(ctx context.Context, x *launch, now time.Time) {
	x.began = now
	switch {
	case x.record.ID == "":
		id, err := l.cfg.NewID(x.group.Kind, now)
		if err != nil {
			err = because(ReasonBuild, err)
			told := l.refused(x, err, now)
			l.schedule.mark(x.group.Key)
			if !told {
				l.workers.Go(func() { l.fail(ctx, err, x.group.Key, "") })
			}
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
	l.under.add(x, 1)
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

// of returns the records of a group's creates that have begun.
func (l *launcher) of(key fleet.GroupKey) (begun []fleet.Instance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.begun {
		if x.group.Key == key {
			begun = append(begun, x.record)
		}
	}
	return begun
}

// refused takes over that a create made nothing, as far as is known, and reports
// whether the problem that the group's creates fail tells of it.
func (l *launcher) refused(x *launch, err error, now time.Time) (told bool) {
	told = l.pacing.refused(x, err, now)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue.drop(x.group.Key) // what has not begun is decided anew
	return told
}

// release lets the next create begin.
func (l *launcher) release(x *launch) {
	l.mu.Lock()
	if x.counted {
		x.counted = false
		l.under.add(x, -1)
	}
	l.mu.Unlock()
	l.schedule.signal()
}

// onDemandWait is the longest wait of an on-demand instance, which somebody waits for.
const onDemandWait = 5 * time.Minute

// again draws the wait until a create of unknown outcome, or of an on-demand instance,
// is repeated.
func (l *launcher) again(x *launch, failures int) time.Duration {
	limit := l.tuning.Load().CreateBackoff
	if x.record.OnDemand {
		limit = min(limit, onDemandWait)
	}
	return createBackoff(limit).Draw(failures, l.cfg.Uniform)
}

// ended takes a launch's outcome, and reports whether a failure needs no more telling.
// An instance whose record may exist although its write failed keeps its place among
// those begun, and is tried again with the same id. The observation comes last: until
// then the instance is busy, and nothing is decided about it.
func (l *launcher) ended(x *launch, out outcome, err error, now time.Time) (told bool) {
	l.release(x)
	switch out {
	case putOff:
		l.takeBack(x, err, now)
		return false
	case unclear, unmade:
		told = l.refused(x, err, now)
	case made, unnoted:
		l.pacing.accepted(x)
	case unrecorded: // a matter of the store
	}
	l.mu.Lock()
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
			b.retryAt = now.Add(l.again(x, b.failures))
		default:
		}
	})
	if out == made && x.replaces == "" {
		l.schedule.markSoon(now, x.group.Key)
		return
	}
	l.schedule.mark(x.group.Key)
	return told
}
