// Package fair decides which of a shard's waiting creates begins next. Tenants take turns, and so
// do the groups of a tenant; groups whose creates fail have at most one create in progress each,
// and together a share of the slots and of the rate. Decisions depend only on the arguments.
package fair

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/nstance/nstance/pkg/fleet"
)

// probeShare is the inverse of the share of the shard's creates that all groups with failing
// creates have together.
const probeShare = 10

// Create is a create that waits or is in progress.
type Create interface {
	// Turn must not change while the create is in progress.
	Turn() Turn
}

// Turn is what the order of creates depends on.
type Turn struct {
	Group     fleet.GroupKey
	Immediate bool // it replaces an instance that had settled
	Probe     bool // the group's creates fail
	OnDemand  bool // it is none of the group's own
}

func (t Turn) rank() int {
	switch {
	case t.Immediate:
		return 0
	case !t.Probe:
		return 1
	default:
		return 2
	}
}

// Rate limits the creates of the whole shard.
type Rate struct {
	PerSecond   float64 // 0: unlimited
	Burst       int     // used with PerSecond, at least 1
	Concurrency int     // concurrent creates, at least 1
}

func (r Rate) limit() rate.Limit {
	if r.PerSecond > 0 {
		return rate.Limit(r.PerSecond)
	}
	return rate.Inf
}

// ofProbes returns the rate of all groups whose creates fail.
func (r Rate) ofProbes() Rate { return Rate{PerSecond: r.PerSecond / probeShare, Burst: 1} }

// Provider is what the provider accepts.
type Provider interface {
	// Changes returns how many changes it accepts per second; 0: no limit is known.
	Changes() (perSecond float64)
	// ClaimCreate claims the turn of a create, or returns when the next one is.
	ClaimCreate(now time.Time) (at time.Time, ok bool)
}

// Queue holds the creates that were decided and have not begun, and counts those in progress. It
// is not safe for concurrent use.
type Queue[T Create] struct {
	turns  turns[T]
	rate   Rate
	all    *rate.Limiter
	probes *rate.Limiter // of groups whose creates fail
	active active
}

// active counts the creates in progress.
type active struct {
	all     int
	probes  int                    // of groups whose creates fail
	of      map[fleet.GroupKey]int // of each group, without on-demand ones
	tenants map[string]int         // of each tenant
}

// New returns an empty queue.
func New[T Create](r Rate) *Queue[T] {
	return &Queue[T]{
		turns: newTurns[T](), rate: r, all: rate.NewLimiter(r.limit(), r.Burst),
		probes: rate.NewLimiter(r.ofProbes().limit(), r.ofProbes().Burst),
		active: active{of: map[fleet.GroupKey]int{}, tenants: map[string]int{}},
	}
}

// Retune applies another rate and clears the queue.
func (q *Queue[T]) Retune(r Rate) {
	q.rate = r
	q.all.SetLimit(r.limit())
	q.all.SetBurst(r.Burst)
	q.probes.SetLimit(r.ofProbes().limit())
	q.probes.SetBurst(r.ofProbes().Burst)
	q.Clear()
}

// Set replaces the waiting creates of a group.
func (q *Queue[T]) Set(key fleet.GroupKey, creates []T) { q.turns.set(key, creates) }

// Drop forgets the waiting creates of a group.
func (q *Queue[T]) Drop(key fleet.GroupKey) { q.turns.drop(key) }

// Clear forgets all creates that have not begun.
func (q *Queue[T]) Clear() { q.turns = newTurns[T]() }

// Waiting returns the number of groups with waiting creates.
func (q *Queue[T]) Waiting() int { return len(q.turns.waiting) }

// Next removes and returns the create that may begin now. If there is none, it returns when the
// rate allows one; zero: not without an event. A tenant may use all slots that no other waits
// for. Creates in progress are not preempted: others get their share as slots become free.
func (q *Queue[T]) Next(now time.Time, p Provider) (x T, ok bool, at time.Time) {
	slots := q.rate.Concurrency
	if q.active.all >= slots || len(q.turns.tenants) == 0 {
		return x, false, time.Time{}
	}
	q.throttleProbes(now, p.Changes())
	isRoom, wait := q.active.probes < max(1, slots/probeShare), untilFree(q.probes, now)
	share := q.turns.share(slots, q.active.tenants)
	key, ok := q.turns.next(
		func(t Turn) bool { return !t.Probe || isRoom && wait == 0 && q.active.of[t.Group] == 0 },
		func(tenant string) bool { return q.active.tenants[tenant] >= share },
	)
	switch all := untilFree(q.all, now); {
	case !ok && isRoom && wait > 0:
		return x, false, now.Add(wait)
	case !ok:
		return x, false, time.Time{}
	case all > 0:
		return x, false, now.Add(all)
	}
	if at, ok := p.ClaimCreate(now); !ok {
		return x, false, at
	}
	x = q.turns.pop(key)
	q.all.AllowN(now, 1)
	if x.Turn().Probe {
		q.probes.AllowN(now, 1)
	}
	return x, true, time.Time{}
}

// Began counts a create as in progress.
func (q *Queue[T]) Began(x T) { q.active.add(x.Turn(), 1) }

// Ended ends a create that Began counted.
func (q *Queue[T]) Ended(x T) { q.active.add(x.Turn(), -1) }

func (a *active) add(t Turn, n int) {
	a.all += n
	if t.Probe {
		a.probes += n
	}
	if a.tenants[t.Group.Tenant] += n; a.tenants[t.Group.Tenant] == 0 {
		delete(a.tenants, t.Group.Tenant)
	}
	if t.OnDemand {
		return
	}
	if a.of[t.Group] += n; a.of[t.Group] == 0 {
		delete(a.of, t.Group)
	}
}

// throttleProbes reduces the rate of probes in proportion when the provider accepts less than
// the configured rate.
func (q *Queue[T]) throttleProbes(now time.Time, bound float64) {
	limit := q.rate.ofProbes().limit()
	if bound > 0 {
		limit = min(limit, rate.Limit(bound/probeShare))
	}
	if q.probes.Limit() != limit {
		q.probes.SetLimitAt(now, limit)
	}
}

// untilFree returns how long it takes until a limiter allows one more.
func untilFree(l *rate.Limiter, now time.Time) time.Duration {
	r := l.ReserveN(now, 1)
	defer r.CancelAt(now)
	return r.DelayFrom(now)
}
