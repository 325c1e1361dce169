package reconcile

import (
	"context"
	"slices"
	"sync"
)

// slots is a FIFO semaphore with a variable limit. When the limit shrinks, acquired slots stay
// valid. Safe for concurrent use.
type slots struct {
	mu      sync.Mutex
	limit   int
	free    int             // may be negative after the limit has shrunk
	waiting []chan struct{} // each is closed when its slot is granted
}

func newSlots(limit int) *slots { return &slots{limit: limit, free: limit} }

// acquire waits for a slot; free releases it and must be called once. The error is ctx's.
func (s *slots) acquire(ctx context.Context) (free func(), err error) {
	granted := make(chan struct{})
	s.change(func() { s.waiting = append(s.waiting, granted) })
	select {
	case <-granted:
		return func() { s.change(func() { s.free++ }) }, nil
	case <-ctx.Done():
		s.change(func() {
			if n := slices.Index(s.waiting, granted); n >= 0 {
				s.waiting = slices.Delete(s.waiting, n, n+1)
			} else {
				s.free++ // granted meanwhile
			}
		})
		return nil, ctx.Err()
	}
}

func (s *slots) resize(limit int) {
	s.change(func() { s.limit, s.free = limit, s.free+limit-s.limit })
}

// change calls by under the lock and then grants free slots.
func (s *slots) change(by func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by()
	for s.free > 0 && len(s.waiting) > 0 {
		s.free--
		close(s.waiting[0])
		s.waiting = s.waiting[1:]
	}
}
