// Package schedule holds what is due, and when: the groups that wait for a pass, and times by key.
package schedule

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Schedule holds the groups that are due for a pass. It is safe for concurrent use.
type Schedule struct {
	woken    chan struct{} // capacity 1: signals that there is something to do
	passTook atomic.Int64  // duration of the last pass, in nanoseconds

	all func() []fleet.GroupKey

	mu     sync.Mutex
	due    []fleet.GroupKey
	marked map[fleet.GroupKey]bool // those in due
	later  Moments[fleet.GroupKey]
}

// New returns an empty schedule. all returns every group that is defined or has records.
func New(all func() []fleet.GroupKey) *Schedule {
	return &Schedule{woken: make(chan struct{}, 1), all: all, marked: map[fleet.GroupKey]bool{}}
}

// Woken delivers when there is something to do.
func (s *Schedule) Woken() <-chan struct{} { return s.woken }

// Took records the duration of a pass.
func (s *Schedule) Took(d time.Duration) { s.passTook.Store(int64(d)) }

// Entries returns the number of groups that are due or will be.
func (s *Schedule) Entries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.due) + len(s.marked) + s.later.Len()
}

// Due returns the number of groups that are due now.
func (s *Schedule) Due() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.due)
}

// MarkAll requests a pass of every group that is defined or has records.
func (s *Schedule) MarkAll() { s.Mark(s.all()...) }

// Mark requests a pass of each group.
func (s *Schedule) Mark(keys ...fleet.GroupKey) {
	s.mu.Lock()
	s.mark(keys)
	s.mu.Unlock()
	s.Wake()
}

// mark is Mark for a caller that holds mu. Groups that become due together are sorted: keys often
// are in the random order of a map, on which no decision may depend.
func (s *Schedule) mark(keys []fleet.GroupKey) {
	before := len(s.due)
	for _, key := range keys {
		if !s.marked[key] {
			s.marked[key] = true
			s.due = append(s.due, key)
		}
	}
	slices.SortFunc(s.due[before:], fleet.GroupKey.Compare)
}

// MarkAt requests a pass of a group at t, or sooner if one is scheduled already. It is a no-op
// if t is zero.
func (s *Schedule) MarkAt(key fleet.GroupKey, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.IsZero() {
		s.later.Add(key, t)
	}
}

// unhurriedMost is the maximum delay of a pass that is not urgent.
const unhurriedMost = 500 * time.Millisecond

// MarkSoon requests a pass of each group for news that changes nothing for its other instances,
// such as that an instance is healthy. A pass is O(instances), so such news is batched: the
// delay is ten times the last pass's duration, at most unhurriedMost.
func (s *Schedule) MarkSoon(now time.Time, keys ...fleet.GroupKey) {
	at := now.Add(min(time.Duration(10*s.passTook.Load()), unhurriedMost))
	for _, key := range keys {
		s.MarkAt(key, at)
	}
	s.Wake()
}

// Wake wakes the deciding goroutine.
func (s *Schedule) Wake() {
	select {
	case s.woken <- struct{}{}:
	default: // already signalled
	}
}

// Pop removes and returns a group that is due, if there is one, and cancels its later pass: the
// pass that begins now schedules the next one itself.
func (s *Schedule) Pop(now time.Time) (key fleet.GroupKey, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark(s.later.Take(now))
	if len(s.due) == 0 {
		return key, false
	}
	key, s.due = s.due[0], s.due[1:]
	delete(s.marked, key)
	s.later.Delete(key)
	return key, true
}

// Next returns when the next scheduled group is due (zero: none), and whether none is due
// already.
func (s *Schedule) Next() (next time.Time, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.later.Next(), len(s.due) == 0
}
