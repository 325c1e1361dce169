package ledger

import (
	"context"
	"fmt"
	"sync"

	"github.com/nstance/nstance/pkg/fleet"
)

// locks serialises what is done to one instance, across the I/O of it.
type locks struct {
	mu   sync.Mutex
	held map[fleet.InstanceID]*lock
}

type lock struct {
	users int           // holding or waiting
	token chan struct{} // full while held
}

// lock waits for the instance, or for ctx to end. The caller calls unlock once.
func (l *locks) lock(ctx context.Context, id fleet.InstanceID) (unlock func(), err error) {
	k := l.join(id)
	select {
	case k.token <- struct{}{}:
		return func() { <-k.token; l.part(id, k) }, nil
	case <-ctx.Done():
		l.part(id, k)
		return nil, fmt.Errorf("wait for instance %s: %w", id, context.Cause(ctx))
	}
}

func (l *locks) join(id fleet.InstanceID) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[fleet.InstanceID]*lock{}
	}
	k := l.held[id]
	if k == nil {
		k = &lock{token: make(chan struct{}, 1)}
		l.held[id] = k
	}
	k.users++
	return k
}

func (l *locks) part(id fleet.InstanceID, k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.held, id)
	}
}
