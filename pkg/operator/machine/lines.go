package machine

import (
	"context"
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// perShard is how many workers may wait for the answers of one shard, so that one that
// takes its time leaves most of them to the others.
const perShard = 8

// lines are where requests wait for a place among the calls of a shard, without a
// worker. Whoever waits looks again after some time in any case: one that is woken may
// not need its place any more, and then wakes no other. The zero value is empty. It is
// safe for concurrent use.
type lines struct {
	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request] // nil: nobody is woken
	running map[string]int                                          // by shard
	waiting map[string][]reconcile.Request                          // by shard
}

// begin is the source that feeds those who are woken.
func (l *lines) begin(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = queue
	return nil
}

// enter takes a place, which is to be given back by leave; false: there is none, and the
// request stands in the line.
func (l *lines) enter(shard string, req reconcile.Request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[shard] < perShard {
		if l.running == nil {
			l.running = map[string]int{}
		}
		l.running[shard]++
		return true
	}
	if l.waiting == nil {
		l.waiting = map[string][]reconcile.Request{}
	}
	if !slices.Contains(l.waiting[shard], req) {
		l.waiting[shard] = append(l.waiting[shard], req)
	}
	return false
}

// leave gives a place back, and wakes as many as there are places for.
func (l *lines) leave(shard string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[shard]--; l.running[shard] == 0 {
		delete(l.running, shard)
	}
	waiting := l.waiting[shard]
	if len(waiting) == 0 || l.queue == nil {
		return
	}
	n := min(perShard-l.running[shard], len(waiting))
	if l.waiting[shard] = waiting[n:]; n == len(waiting) {
		delete(l.waiting, shard)
	}
	for _, req := range waiting[:n] {
		l.queue.Add(req)
	}
}

// call asks a machine's shard for something; false: its turn has not come.
func (r *Reconciler) call(s *scope, do func(shard string) error) (made bool, err error) {
	shard := string(s.machine.Spec.Shard)
	if !r.lines.enter(shard, request(s.machine)) {
		return false, nil
	}
	defer r.lines.leave(shard)
	return true, do(shard)
}
