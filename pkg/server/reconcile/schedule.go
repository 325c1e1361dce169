package reconcile

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// schedule says which groups are due for a pass. It is safe for concurrent use.
type schedule struct {
	woken    chan struct{} // holds at most one: there is something to do
	passTook atomic.Int64  // the last pass, in nanoseconds

	mu     sync.Mutex
	due    []fleet.GroupKey
	marked map[fleet.GroupKey]bool // those in due
	later  moments[fleet.GroupKey]
}

func newSchedule() *schedule {
	return &schedule{woken: make(chan struct{}, 1), marked: map[fleet.GroupKey]bool{}, later: moments[fleet.GroupKey]{}}
}

// mark asks for a pass of each group.
func (s *schedule) mark(keys ...fleet.GroupKey) {
	s.mu.Lock()
	for _, key := range keys {
		s.markOne(key)
	}
	s.mu.Unlock()
	s.signal()
}

func (s *schedule) markOne(key fleet.GroupKey) {
	if !s.marked[key] {
		s.marked[key] = true
		s.due = append(s.due, key)
	}
}

// markAt asks for a pass of a group at t, unless that is none, or one is to
// come sooner.
func (s *schedule) markAt(key fleet.GroupKey, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.IsZero() {
		s.later.add(key, t)
	}
}

// unhurriedMost is how long a pass waits at most that nothing is urgent for.
const unhurriedMost = 500 * time.Millisecond

// markSoon asks for a pass of each group for news that changes nothing for anybody else
// in it, such as that an instance does well. Thousands of them must not be as many
// passes, of which each costs what the group has instances, so news is gathered for a
// moment: ten times what the last pass took, unhurriedMost at most.
func (s *schedule) markSoon(now time.Time, keys ...fleet.GroupKey) {
	at := now.Add(min(time.Duration(10*s.passTook.Load()), unhurriedMost))
	for _, key := range keys {
		s.markAt(key, at)
	}
	s.signal()
}

// signal wakes the deciding goroutine.
func (s *schedule) signal() {
	select {
	case s.woken <- struct{}{}:
	default: // it knows already
	}
}

// take returns a group that is due, if there is one. The pass that begins asks
// for another one itself if it needs to.
func (s *schedule) take(now time.Time) (key fleet.GroupKey, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, at := range s.later {
		if !at.After(now) {
			delete(s.later, key)
			s.markOne(key)
		}
	}
	if len(s.due) == 0 {
		return key, false
	}
	key, s.due = s.due[0], s.due[1:]
	delete(s.marked, key)
	delete(s.later, key)
	return key, true
}

// next is when a group is due although nothing happens (zero: none is), and
// whether none is due already.
func (s *schedule) next() (next time.Time, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.later.next(), len(s.due) == 0
}

// moments says when something is due.
type moments[K comparable] map[K]time.Time

// add makes something due at t, or sooner if it is to be already.
func (m moments[K]) add(k K, t time.Time) {
	if old, ok := m[k]; !ok || t.Before(old) {
		m[k] = t
	}
}

// next is when the next thing is due; zero: nothing is.
func (m moments[K]) next() (next time.Time) {
	for _, t := range m {
		next = sooner(next, t)
	}
	return next
}

// sooner returns the earlier of two moments, of which either may be none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
