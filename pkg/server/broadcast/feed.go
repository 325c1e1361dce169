package broadcast

import "sync"

// Feed passes events on to readers as they happen. The zero value is ready; its
// methods are safe for concurrent use.
type Feed[T any] struct {
	mu      sync.Mutex
	readers map[*Reader[T]]struct{}
}

// Reader is one reader of a feed. It is used by one goroutine.
type Reader[T any] struct {
	feed  *Feed[T]
	wants func(T) bool
	limit int
	ready chan struct{}

	queue []T
	err   error
}

// Publish passes an event on. It returns at once.
func (f *Feed[T]) Publish(event T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.readers {
		if r.wants(event) {
			r.put(event)
		}
	}
}

// Subscribe adds a reader for matching events, starting with those of first. At most limit
// further events are queued. The reader must be closed.
func (f *Feed[T]) Subscribe(wants func(T) bool, first []T, limit int) *Reader[T] {
	r := &Reader[T]{feed: f, wants: wants, limit: limit + len(first), ready: make(chan struct{}, 1), queue: first}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers == nil {
		f.readers = map[*Reader[T]]struct{}{}
	}
	f.readers[r] = struct{}{}
	return r
}

func (r *Reader[T]) put(event T) {
	switch {
	case r.err != nil:
	case len(r.queue) >= r.limit:
		r.err, r.queue = ErrBehind, nil
	default:
		r.queue = append(r.queue, event)
	}
	signal(r.ready)
}

// Close removes the reader from the feed.
func (r *Reader[T]) Close() {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	delete(r.feed.readers, r)
}

// Ready receives when Next may have more to return than at its last call.
func (r *Reader[T]) Ready() <-chan struct{} { return r.ready }

// Next returns the next event; ok is false if there is none now. The error is ErrBehind, and
// final.
func (r *Reader[T]) Next() (event T, ok bool, err error) {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	if r.err != nil || len(r.queue) == 0 {
		return event, false, r.err
	}
	event, r.queue = r.queue[0], r.queue[1:]
	return event, true, nil
}
