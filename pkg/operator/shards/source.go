package shards

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Source feeds a controller until the context of its start ends: requests maps an event to
// requests. It begins with an event for each shard, each group, each instance, and each open
// problem. requests is called concurrently and must not block; it may read the set.
func (s *Set) Source(requests func(Event) []reconcile.Request) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		send := func(e Event) {
			if ctx.Err() != nil {
				return
			}
			for _, r := range requests(e) {
				queue.Add(r)
			}
		}
		// Subscribe before reading, so that nothing is missed.
		context.AfterFunc(ctx, s.listeners.join(send))
		for _, name := range s.Names() {
			if m := s.memory(name); m != nil {
				for _, e := range m.all() {
					send(e)
				}
			}
		}
		return nil
	})
}

func (m *memory) all() []Event {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.everything()
}

// listeners are the subscribers to events. The zero value is ready.
type listeners struct {
	mu   sync.RWMutex
	next int
	all  map[int]func(Event)
}

// join adds a listener until leave is called.
func (l *listeners) join(send func(Event)) (leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[int]func(Event){}
	}
	n := l.next
	l.next++
	l.all[n] = send
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.all, n)
	}
}

// send calls all listeners in turn, without a lock: they may read the set.
func (l *listeners) send(events []Event) {
	if len(events) == 0 {
		return
	}
	l.mu.RLock()
	all := slices.Collect(maps.Values(l.all))
	l.mu.RUnlock()
	for _, e := range events {
		for _, send := range all {
			send(e)
		}
	}
}
