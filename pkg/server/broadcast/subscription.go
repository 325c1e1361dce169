package broadcast

// Item is one thing that a reader is told.
type Item[K comparable, V any] struct {
	Key   K
	Value V
	Gone  bool // there is no value of the key any more
	End   bool // the snapshot ends here; nothing else is set
}

// Subscription is one reader's place in a hub. One goroutine reads it; its lock
// is the hub's.
type Subscription[K comparable, V any] struct {
	hub   *Hub[K, V]
	wants func(V) bool
	ready chan struct{}

	live  bool // the snapshot is made
	ended bool // and its end was told
	left  int  // keys of the snapshot that the queue begins with
	err   error

	queue   []K
	pending map[K]*entry[V] // of exactly the keys in queue; nil: nothing to tell any more
	told    map[K]Digest    // what the reader knows, of keys that the hub follows
}

// Subscribe joins a reader for the values that it wants. It must be closed.
func (h *Hub[K, V]) Subscribe(wants func(V) bool) *Subscription[K, V] {
	s := &Subscription[K, V]{
		hub: h, wants: wants, ready: make(chan struct{}, 1),
		pending: map[K]*entry[V]{}, told: map[K]Digest{},
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		s.fail(ErrClosed)
		return s
	}
	h.subs[s] = struct{}{}
	h.marks.want(true)
	h.marks.addAll()
	return s
}

// Close leaves the hub.
func (s *Subscription[K, V]) Close() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, s)
	if len(h.subs) == 0 {
		h.marks.want(false)
		clear(h.current)
	}
}

// Ready delivers when Take may have more to say than at its last call.
func (s *Subscription[K, V]) Ready() <-chan struct{} { return s.ready }

// Take returns what the reader is to be told next; not ok when there is nothing
// now. The error is ErrBehind or ErrClosed, and final.
func (s *Subscription[K, V]) Take() (item Item[K, V], ok bool, err error) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for s.err == nil {
		if s.live && !s.ended && s.left == 0 {
			s.ended = true
			return Item[K, V]{End: true}, true, nil
		}
		if len(s.queue) == 0 {
			return item, false, nil
		}
		if item, ok = s.next(); ok {
			return item, true, nil
		}
	}
	return item, false, s.err
}

// next takes the first key of the queue; not ok when the reader knows already.
func (s *Subscription[K, V]) next() (Item[K, V], bool) {
	key := s.queue[0]
	s.queue = s.queue[1:]
	s.left = max(0, s.left-1)
	e := s.pending[key]
	delete(s.pending, key)
	known, was := s.told[key]
	switch {
	case e == nil, was && !e.gone && known == e.digest:
		return Item[K, V]{}, false
	case e.gone:
		delete(s.told, key)
		return Item[K, V]{Key: key, Gone: true}, true
	}
	if s.hub.current[key] != nil { // else it would be kept for ever
		s.told[key] = e.digest
	}
	return Item[K, V]{Key: key, Value: e.value}, true
}

// start makes the snapshot of what the hub holds of keys.
func (s *Subscription[K, V]) start(keys []K) {
	s.live, s.left, s.queue = true, len(keys), keys
	for _, key := range keys {
		s.pending[key] = s.hub.current[key]
	}
	signal(s.ready)
}

// put queues a value in place of an older one.
func (s *Subscription[K, V]) put(key K, e *entry[V]) {
	if s.err != nil {
		return
	}
	if _, queued := s.pending[key]; !queued {
		if len(s.queue)-s.left >= s.hub.cfg.MaxPending {
			s.fail(ErrBehind)
			return
		}
		s.queue = append(s.queue, key)
	}
	s.pending[key] = e
	signal(s.ready)
}

// forget hears that the hub follows a key no longer.
func (s *Subscription[K, V]) forget(key K, tell bool) {
	_, was := s.told[key]
	_, queued := s.pending[key]
	switch {
	case !tell:
		delete(s.told, key) // what waits is the last word
	case was:
		s.put(key, &entry[V]{gone: true})
	case queued:
		s.pending[key] = nil
	}
}

// fail ends the subscription and lets go of what it held.
func (s *Subscription[K, V]) fail(err error) {
	if s.err == nil {
		s.err, s.queue, s.pending, s.told = err, nil, nil, nil
		signal(s.ready)
	}
}
