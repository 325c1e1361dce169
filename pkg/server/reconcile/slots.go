package reconcile

import (
	"context"
	"slices"
	"sync"
)

// slots bounds how many of something are under way at one time. The longest
// wait is the next to end. The bound may change; when it shrinks, slots that
// are taken stay so. Safe for concurrent use.
type slots struct {
	mu      sync.Mutex
	limit   int
	free    int             // less than none after the limit has shrunk
	waiting []chan struct{} // each is closed when its slot is there
}

func newSlots(limit int) *slots { return &slots{limit: limit, free: limit} }

// take waits for a slot; free gives it back, and is to be called once. The
// error is the context's.
func (s *slots) take(ctx context.Context) (free func(), err error) {
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
				s.free++ // it came meanwhile
			}
		})
		return nil, ctx.Err()
	}
}

func (s *slots) resize(limit int) {
	s.change(func() { s.limit, s.free = limit, s.free+limit-s.limit })
}

// change makes a change and hands out what is free after it.
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
