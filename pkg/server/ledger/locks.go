package ledger

import (
	"context"
	"fmt"
	"sync"
)

// locks serializes the operations on each record, including their I/O.
type locks[K comparable] struct {
	mu   sync.Mutex
	held map[K]*lock
}

type lock struct {
	users int           // holding or waiting
	token chan struct{} // full while held
}

// lock waits for the record, or for ctx to end. The caller calls unlock once.
func (l *locks[K]) lock(ctx context.Context, id K) (unlock func(), err error) {
	k := l.join(id)
	select {
	case k.token <- struct{}{}:
		return func() { <-k.token; l.part(id, k) }, nil
	case <-ctx.Done():
		l.part(id, k)
		return nil, fmt.Errorf("wait for another change of %v: %w", id, context.Cause(ctx))
	}
}

func (l *locks[K]) join(id K) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[K]*lock{}
	}
	k := l.held[id]
	if k == nil {
		k = &lock{token: make(chan struct{}, 1)}
		l.held[id] = k
	}
	k.users++
	return k
}

func (l *locks[K]) part(id K, k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.held, id)
	}
}
