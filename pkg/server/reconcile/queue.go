package reconcile

import (
	"context"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

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
// not keep a small one waiting. It returns nil when there is none.
func (q *queue) take() *launch {
	if len(q.turn) == 0 {
		return nil
	}
	n := slices.IndexFunc(q.turn, func(k fleet.GroupKey) bool { return q.waiting[k][0].replaces != "" })
	n = max(n, 0)
	key := q.turn[n]
	x := q.waiting[key][0]
	rest := q.waiting[key][1:]
	q.drop(key)
	q.set(key, rest)
	return x
}

// launch is one create, from decision to outcome.
type launch struct {
	group     fleet.Group
	record    fleet.Instance // only the id when a recorded create is resumed; zero: an instance to be made
	decidedAt time.Time
	began     time.Time
	active    bool      // a worker is on it
	counted   bool      // it counts as a create under way
	retryAt   time.Time // when the record is tried again whose write failed
	triedAt   time.Time // when that write ended
	unlisted  bool      // a relist that began since did not show the record

	replaces fleet.InstanceID // the lost instance it stands in for; empty: none
	loss     loss
}

// dispatch begins the creates that the shard's rate and concurrency allow. l.mu
// is held.
func (l *Loop) dispatch(ctx context.Context, now time.Time) {
	l.createAt = time.Time{}
	for l.creating < l.tuning.Load().CreateRate.Concurrency && len(l.queue.turn) > 0 && ctx.Err() == nil {
		r := l.limiter.ReserveN(now, 1)
		if wait := r.DelayFrom(now); wait > 0 {
			r.CancelAt(now)
			l.createAt = now.Add(wait)
			return
		}
		l.start(ctx, l.queue.take(), now)
	}
}

// start begins one create. l.mu is held.
func (l *Loop) start(ctx context.Context, x *launch, now time.Time) {
	x.began = now
	resume := x.record.ID != "" && l.launching[x.record.ID] == nil
	switch {
	case resume:
		r, ok := l.cfg.Ledger.Get(x.record.ID)
		if !ok || r.Phase != fleet.Pending {
			return // it has moved on since the decision
		}
		x.record = r
	case x.record.ID == "":
		id, err := l.cfg.NewID(x.group.Kind, now)
		if err != nil {
			l.createFailed(x.group, now, now)
			l.mark(x.group.Key)
			l.workers.Go(func() { l.fail(ctx, because(ReasonBuild, err), x.group.Key, "") })
			return
		}
		x.record = x.newRecord(id, now)
	}
	t := l.track(x.record.ID)
	if t.isBusy(now) {
		return
	}
	if lost := l.tracks[x.replaces]; lost != nil && lost.loss != nil {
		lost.loss.replaced = true
		x.loss = *lost.loss
	}
	t.busy, t.attemptedAt = true, now
	x.active, x.counted = true, true
	l.launching[x.record.ID] = x
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

// release lets the next create begin. l.mu is held.
func (l *Loop) release(x *launch) {
	if x.counted {
		x.counted = false
		l.creating--
		l.signal()
	}
}

// ended takes a launch's outcome. An instance whose record may exist although its
// write failed keeps its place in launching, and is tried again with the same id.
// l.mu is held.
func (l *Loop) ended(x *launch, out outcome, now time.Time) {
	l.release(x)
	t := l.track(x.record.ID)
	t.busy, x.active = false, false
	// What an on-demand instance comes to says nothing about the group's creates: it
	// may have been asked for with another instance type.
	failed, worked := l.createFailed, func() { delete(l.backoffs, x.group.Key) }
	if x.record.OnDemand {
		failed, worked = func(fleet.Group, time.Time, time.Time) {}, func() {}
	}
	switch out {
	case made:
		worked()
		t.failures, t.retryAt = 0, time.Time{}
	case unnoted: // the store's failure says nothing about the group's creates
		worked()
		t.failures++
		t.retryAt = now.Add(stepBackoff().Delay(t.failures))
	case unclear:
		failed(x.group, x.began, now)
		t.failures++
		t.retryAt = now.Add(createBackoff().Delay(t.failures))
	case unrecorded: // the store's failure says nothing about the group's creates
		t.failures++
		x.retryAt = now.Add(stepBackoff().Delay(t.failures))
		x.triedAt, x.unlisted = now, false
	default:
		failed(x.group, x.began, now)
	}
	if out != unrecorded {
		delete(l.launching, x.record.ID)
	}
	l.mark(x.group.Key)
}
