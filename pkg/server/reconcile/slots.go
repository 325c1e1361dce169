package reconcile

import (
	"context"
	"slices"
	"sync"
)

// slots bounds how many of something are under way at one time. Who waits longest is next. The bound may change; one
// that shrinks takes nothing away from those who have a slot. Safe for concurrent use.
type slots struct {
	mu      sync.Mutex
	limit   int
	used    int
	waiting []chan struct{} // closed when its owner has a slot
}

func newSlots(limit int) *slots { return &slots{limit: limit} }

// take waits for a slot; free gives it back, and is to be called once. The error is the context's.
func (s *slots) take(ctx context.Context) (free func(), err error) {
	granted := s.queue()
	select {
	case <-granted:
		return s.free, nil
	case <-ctx.Done():
		s.leave(granted)
		return nil, ctx.Err()
	}
}

func (s *slots) queue() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	granted := make(chan struct{})
	s.waiting = append(s.waiting, granted)
	s.grant()
	return granted
}

// grant hands out what is free. s.mu is held.
func (s *slots) grant() {
	for s.used < s.limit && len(s.waiting) > 0 {
		s.used++
		close(s.waiting[0])
		s.waiting = s.waiting[1:]
	}
}

func (s *slots) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.grant()
}

// leave gives up waiting; a slot that was granted meanwhile goes to the next.
func (s *slots) leave(granted chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := slices.Index(s.waiting, granted); n >= 0 {
		s.waiting = slices.Delete(s.waiting, n, n+1)
		return
	}
	s.used--
	s.grant()
}

func (s *slots) resize(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = limit
	s.grant()
}
