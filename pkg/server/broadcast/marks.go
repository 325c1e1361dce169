package broadcast

import "sync"

// marks are the keys that are to be looked at. They have a lock of their own,
// held for moments only, because whoever marks must not wait.
type marks[K comparable] struct {
	wake chan struct{} // holds at most one: something is marked

	mu     sync.Mutex
	wanted bool // somebody reads; nothing is marked otherwise
	all    bool
	keys   map[K]struct{}
}

func newMarks[K comparable]() marks[K] {
	return marks[K]{wake: make(chan struct{}, 1), keys: map[K]struct{}{}}
}

func (m *marks[K]) add(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.wanted {
		return
	}
	m.keys[key] = struct{}{}
	signal(m.wake)
}

func (m *marks[K]) addAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.wanted {
		return
	}
	m.all = true
	signal(m.wake)
}

// take returns what is marked, and unmarks it.
func (m *marks[K]) take() (keys map[K]struct{}, all bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys, all = m.keys, m.all
	m.keys, m.all = map[K]struct{}{}, false
	return keys, all
}

// want says whether anybody reads.
func (m *marks[K]) want(wanted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = wanted
	if !wanted {
		m.keys, m.all = map[K]struct{}{}, false
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it knows already
	}
}
