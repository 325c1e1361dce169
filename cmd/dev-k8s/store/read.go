package store

import (
	"errors"
)

// ErrCompacted means that a revision is no longer available, ErrFuture that it does not exist
// yet.
var (
	ErrCompacted = errors.New("the revision has been compacted")
	ErrFuture    = errors.New("the revision is in the future")
)

// Query selects the keys from Key up to End at a revision. A revision of 0 means the newest, a
// limit of 0 no limit, an End of "\x00" all keys, and an empty End one key.
type Query struct {
	Key, End  string
	Revision  int64
	Limit     int64
	CountOnly bool
}

// Answer is the result of a query. Count ignores the limit.
type Answer struct {
	Entries  []*Entry
	Count    int64
	Revision int64 // the newest
}

// Range runs a query.
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

// Revision returns the newest revision.
func (s *Store) Revision() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.memory.rev
}

// Compacted returns the last compacted revision.
func (s *Store) Compacted() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.memory.compacted
}

// Changed returns a channel that is closed by the next revision.
func (s *Store) Changed() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.changed
}

// Since returns at most limit events after a revision, and the revision up to which they are
// complete.
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
	// Later appends don't overwrite this slice.
	return events[:len(events):len(events)], max(rev, s.memory.rev), nil
}

// Compact drops the history before a revision.
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

// Size returns the journal's size in bytes.
func (s *Store) Size() int64 {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.journal.size
}
