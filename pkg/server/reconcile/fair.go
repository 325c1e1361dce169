package reconcile

import (
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// probeShare is the part of the shard's creates, one in so many, that groups have
// together whose creates fail.
const probeShare = 10

// queue holds the creates that were decided and have not begun. Every pass of a
// group replaces what the group has here, so nothing begins that the latest
// decision does not want.
type queue struct {
	waiting map[fleet.GroupKey][]*launch
	turn    []fleet.GroupKey // the groups in waiting, whose turn is next first
}

func newQueue() queue { return queue{waiting: map[fleet.GroupKey][]*launch{}} }

// set replaces a group's creates. Those that are owed come first, and probes last, so
// that one that has to wait keeps nothing of its group from beginning.
func (q *queue) set(key fleet.GroupKey, launches []*launch) {
	if len(launches) == 0 {
		q.drop(key)
		return
	}
	if _, ok := q.waiting[key]; !ok {
		q.turn = append(q.turn, key)
	}
	slices.SortStableFunc(launches, func(a, b *launch) int { return a.rank() - b.rank() })
	q.waiting[key] = launches
}

func (x *launch) rank() int {
	switch {
	case x.owed:
		return 0
	case !x.probe:
		return 1
	default:
		return 2
	}
}

func (q *queue) drop(key fleet.GroupKey) {
	delete(q.waiting, key)
	q.turn = slices.DeleteFunc(q.turn, func(k fleet.GroupKey) bool { return k == key })
}

// next returns the place in turn of the group that has the next create, of those that
// may begin; less than 0: none. Replacements of instances that had settled come before
// all others, and otherwise one group comes after the other, so that a large one does
// not keep a small one waiting.
func (q *queue) next(may func(*launch) bool) int {
	if n := slices.IndexFunc(q.turn, func(k fleet.GroupKey) bool { return q.waiting[k][0].owed }); n >= 0 {
		return n
	}
	return slices.IndexFunc(q.turn, func(k fleet.GroupKey) bool { return may(q.waiting[k][0]) })
}

// take takes out the next create of the group at a place in turn, which goes to the end.
func (q *queue) take(n int) *launch {
	key := q.turn[n]
	x, rest := q.waiting[key][0], q.waiting[key][1:]
	q.drop(key)
	q.set(key, rest)
	return x
}

// underWay counts the creates under way.
type underWay struct {
	all    int
	probes int                    // of groups whose creates fail
	of     map[fleet.GroupKey]int // of each group, on-demand ones aside
}

func (u *underWay) add(x *launch, n int) {
	u.all += n
	if x.probe {
		u.probes += n
	}
	if x.record.OnDemand {
		return
	}
	if u.of[x.group.Key] += n; u.of[x.group.Key] == 0 {
		delete(u.of, x.group.Key)
	}
}

// set says what a group's creates are that have not begun, after a view. When a
// create has failed or worked since that was made, which marks the group, they
// are decided anew instead.
func (l *launcher) set(v plan.View, launches []*launch) {
	fails := l.pacing.failing(v.Group.Key)
	for _, x := range launches {
		x.probe = fails && !x.owed && !x.onDemand
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.pacing.isPace(v) {
		launches = nil
	}
	l.queue.set(v.Group.Key, launches)
}

// take returns the create that may begin now; nil: none. Groups whose creates fail
// have one create under way each, and together a share of the slots and of the rate.
func (l *launcher) take(now time.Time) *launch {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.createAt = time.Time{}
	slots := l.tuning.Load().CreateRate.Concurrency
	if l.under.all >= slots || len(l.queue.turn) == 0 {
		return nil
	}
	l.throttleProbes(now)
	isRoom, wait := l.under.probes < max(1, slots/probeShare), untilFree(l.probes, now)
	n := l.queue.next(func(x *launch) bool {
		return !x.probe || isRoom && wait == 0 && l.under.of[x.group.Key] == 0
	})
	switch all := untilFree(l.limiter, now); {
	case n < 0 && isRoom && wait > 0:
		l.createAt = now.Add(wait)
		return nil
	case n < 0:
		return nil
	case all > 0:
		l.createAt = now.Add(all)
		return nil
	}
	if at, ok := l.cloud.mutations.claim(now); !ok {
		l.createAt = at
		return nil
	}
	x := l.queue.take(n)
	l.limiter.AllowN(now, 1)
	if x.probe {
		l.probes.AllowN(now, 1)
	}
	return x
}

// throttleProbes keeps the share of the groups whose creates fail when the provider
// takes less than the rate.
func (l *launcher) throttleProbes(now time.Time) {
	limit := l.tuning.Load().CreateRate.probeRate().limit()
	if bound := l.cloud.mutations.rate(); bound > 0 {
		limit = min(limit, rate.Limit(bound/probeShare))
	}
	if l.probes.Limit() != limit {
		l.probes.SetLimitAt(now, limit)
	}
}

// untilFree is how long it takes until a rate allows one more.
func untilFree(l *rate.Limiter, now time.Time) time.Duration {
	r := l.ReserveN(now, 1)
	defer r.CancelAt(now)
	return r.DelayFrom(now)
}

// probeRate is the rate of the groups whose creates fail.
func (r CreateRate) probeRate() CreateRate {
	return CreateRate{PerSecond: r.PerSecond / probeShare, Burst: 1}
}
