package store

import (
	"errors"
)

// ErrCompacted is of a revision that is no longer known, ErrFuture of one that is
// not yet.
var (
	ErrCompacted = errors.New("the revision has been compacted")
	ErrFuture    = errors.New("the revision is in the future")
)

// Query asks for the keys from Key, and before End, as they were at a revision. A
// revision of 0 is the newest, a limit of 0 is none, and an End of "\x00" is that of
// all keys. Without an End it asks for one key.
type Query struct {
	Key, End  string
	Revision  int64
	Limit     int64
	CountOnly bool
}

// Answer is what a query comes to. Count is how many there are, whatever the limit.
type Answer struct {
	Entries  []*Entry
	Count    int64
	Revision int64 // the newest
}

// Range answers a query.
func (s *Store) Range(q Query) (Answer, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	answer := Answer{Revision: s.memory.rev}
	rev := q.Revision
	switch {
	case rev <= 0:
		rev = s.memory.rev
	case rev > s.memory.rev:
		return answer, ErrFuture
	case rev < s.memory.compacted:
		return answer, ErrCompacted
	}
	s.memory.within(q.Key, q.End, rev, func(e *Entry) {
		answer.Count++
		if !q.CountOnly && (q.Limit <= 0 || answer.Count <= q.Limit) {
			answer.Entries = append(answer.Entries, e)
		}
	})
	return answer, nil
}

// Revision is the newest.
func (s *Store) Revision() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.memory.rev
}

// Compacted is the revision that was compacted last.
func (s *Store) Compacted() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.memory.compacted
}

// Changed returns a channel that is closed with the next revision.
func (s *Store) Changed() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.changed
}

// Since returns the events of the revisions above one, at most so many, and up to
// which revision these are all.
func (s *Store) Since(rev int64, limit int) ([]Event, int64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if rev < s.memory.compacted {
		return nil, 0, ErrCompacted
	}
	events := s.memory.since(rev)
	if len(events) > limit {
		events = events[:limit]
		return events, events[limit-1].Entry.Mod, nil
	}
	// What is appended later is behind the end of this slice.
	return events[:len(events):len(events)], max(rev, s.memory.rev), nil
}

// Compact forgets what keys were before a revision.
func (s *Store) Compact(rev int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case rev <= s.memory.compacted:
		return ErrCompacted
	case rev > s.memory.rev:
		return ErrFuture
	}
	s.memory.compact(rev)
	return nil
}

// Size is how many bytes all keys take on disk, as far as the journal goes.
func (s *Store) Size() int64 {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.journal.size
}
