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

// Source feeds a controller, until the context that it starts it with ends: requests
// says what is to be reconciled for an event. First comes an event for each shard, each
// group, each instance, and each problem that is not known to be over. requests is
// called by several goroutines and must not block; it may ask the set.
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
		// It listens before it looks, so that it misses nothing.
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

// listeners are told events. The zero value has none and is ready.
type listeners struct {
	mu   sync.RWMutex
	next int
	all  map[int]func(Event)
}

// join adds one, until leave is called.
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

// send tells all of them, one after another. No lock is held then: they may ask the set.
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
