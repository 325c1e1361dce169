package broadcast

import "sync"

// marks are the keys to read. They have their own lock, held briefly, because marking must not
// block.
type marks[K comparable] struct {
	wake chan struct{} // buffered, 1: something is marked

	mu     sync.Mutex
	wanted bool // there are readers; otherwise nothing is marked
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

// drain returns and clears the marks.
func (m *marks[K]) drain() (keys map[K]struct{}, all bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys, all = m.keys, m.all
	m.keys, m.all = map[K]struct{}{}, false
	return keys, all
}

// want sets whether there are readers.
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
	default: // already signaled
	}
}
