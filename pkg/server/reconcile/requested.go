package reconcile

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// maxPassWait limits how long a requested change waits for a pass of its group.
const maxPassWait = 50 * time.Millisecond

// Update is Ledger.Update. If the change has the next pass drain or delete the instance, both
// are one write, which the pass begins within maxPassWait. A change for which it does not is written alone.
func (l *Loop) Update(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) error {
	if i, ok := l.cfg.Ledger.Get(id); ok && decidedAlone(&i) {
		r := &requested{id: id, change: change, ended: make(chan struct{})}
		l.requests.add(i.GroupKey(), r)
		l.schedule.Mark(i.GroupKey())
		if written, err := l.requests.wait(ctx, i.GroupKey(), r); written || err != nil {
			return err
		}
	}
	_, err := l.cfg.Ledger.Update(ctx, id, change)
	return err
}

// decidedAlone reports whether the end of an instance has no other created: before that,
// the change that leads to it must be durable.
func decidedAlone(i *fleet.Instance) bool { return i.OnDemand || i.Phase == fleet.Draining }

// requested is a change of a record that waits to be written together with the step that follows from it.
type requested struct {
	id     fleet.InstanceID
	change func(*fleet.Instance) error

	ended   chan struct{} // closed at the end; then the others are set
	written bool          // or, with an error, may be
	err     error
}

// end ends the wait for a change, which is then written alone, unless it is written. end may be called on
// nil, which is no change.
func (r *requested) end(written bool, err error) {
	if r == nil {
		return
	}
	if written {
		r.written, r.err = true, err
	}
	close(r.ended)
}

// requests are the changes that no pass has taken yet. Safe for concurrent use.
type requests struct {
	mu      sync.Mutex
	waiting map[fleet.GroupKey][]*requested
}

func (q *requests) add(key fleet.GroupKey, r *requested) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == nil {
		q.waiting = map[fleet.GroupKey][]*requested{}
	}
	q.waiting[key] = append(q.waiting[key], r)
}

// wait waits until a pass has written a change, with the result of that, or will not write it. After an
// error it may be written.
func (q *requests) wait(ctx context.Context, key fleet.GroupKey, r *requested) (written bool, err error) {
	late := time.NewTimer(maxPassWait)
	defer late.Stop()
	select {
	case <-r.ended:
		return r.written, r.err
	case <-late.C:
	case <-ctx.Done():
	}
	if q.withdraw(key, r) {
		return false, ctx.Err()
	}
	select {
	case <-r.ended:
		return r.written, r.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// withdraw withdraws a change, unless a pass has taken it.
func (q *requests) withdraw(key fleet.GroupKey, r *requested) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := slices.Index(q.waiting[key], r)
	if n < 0 {
		return false
	}
	q.keep(key, slices.Delete(q.waiting[key], n, n+1))
	return true
}

func (q *requests) keep(key fleet.GroupKey, waiting []*requested) {
	if len(waiting) == 0 {
		delete(q.waiting, key)
		return
	}
	q.waiting[key] = waiting
}

// take takes all changes of the view's group and has the view show the records with them.
func (q *requests) take(v plan.View) []*requested {
	q.mu.Lock()
	taken := q.waiting[v.Group.Key]
	delete(q.waiting, v.Group.Key)
	q.mu.Unlock()
	return slices.DeleteFunc(taken, func(r *requested) bool {
		ok := r.foresee(v.Find(r.id))
		if !ok {
			r.end(false, nil)
		}
		return !ok
	})
}

// foresee has an instance of a view show a change. It reports false if the change is refused, or if
// nothing can be decided about the instance.
func (r *requested) foresee(i *plan.Instance) bool {
	if i == nil || i.Busy || !decidedAlone(i.Instance) {
		return false
	}
	changed := i.Clone()
	if r.change(&changed) != nil {
		return false
	}
	i.Instance = &changed
	return true
}

// leaving returns the changes whose instances leave by an action, by ID. The others end unwritten.
func leaving(taken []*requested, actions []plan.Action) map[fleet.InstanceID]*requested {
	if len(taken) == 0 {
		return nil
	}
	first := make(map[fleet.InstanceID]*requested, len(taken))
	for _, r := range taken {
		if first[r.id] != nil {
			r.end(false, nil)
			continue
		}
		first[r.id] = r
	}
	leave := make(map[fleet.InstanceID]*requested, len(first))
	for _, a := range actions {
		if r := first[a.ID]; r != nil && writesPhase(a.Kind) {
			leave[a.ID] = r
			delete(first, a.ID)
		}
	}
	for _, r := range first {
		r.end(false, nil)
	}
	return leave
}

func writesPhase(k plan.Kind) bool { return k == plan.Drain || k == plan.Delete || k == plan.Tombstone }
