package broadcast

// Item is one thing that a reader is told.
type Item[K comparable, V any] struct {
	Key   K
	Value V
	Gone  bool // there is no value of the key any more
	End   bool // the snapshot ends here

	// Resumed, of End: the snapshot is of what has changed since the revision that
	// the reader came from.
	Resumed bool
	// Revision is where the reader now is: it was told of all changes up to it, and
	// can resume from there. 0 while it was not told of everything yet.
	Revision Revision
}

// Subscription is one reader's place in a hub. One goroutine reads it; its lock
// is the hub's.
type Subscription[K comparable, V any] struct {
	hub   *Hub[K, V]
	wants func(V) bool
	ready chan struct{}

	from    Revision // up to which the reader was told of all changes before it joined; 0: of none
	live    bool     // the snapshot is made
	resumed bool     // of what has changed since from
	ended   bool     // and its end was told
	left    int      // keys of the snapshot that the queue begins with
	err     error

	queue   []place[K]      // in the order of their revisions, after those of the snapshot
	pending map[K]*entry[V] // of exactly the keys in queue; nil: nothing to tell any more
	told    map[K]Digest    // what the reader knows, of keys that the hub follows
}

// place is a key that waits, and the revision that it waits for the longest.
type place[K comparable] struct {
	key      K
	revision Revision
}

// Subscribe joins a reader for the values that it wants. It must be closed.
func (h *Hub[K, V]) Subscribe(wants func(V) bool) *Subscription[K, V] { return h.Resume(wants, 0) }

// Resume joins a reader that was told of all changes up to a revision of this hub
// before. It gets what changed since if the hub still knows that, and a whole
// snapshot otherwise.
func (h *Hub[K, V]) Resume(wants func(V) bool, from Revision) *Subscription[K, V] {
	s := &Subscription[K, V]{
		hub: h, wants: wants, from: from, ready: make(chan struct{}, 1),
		pending: map[K]*entry[V]{}, told: map[K]Digest{},
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		s.fail(ErrClosed)
		return s
	}
	h.subs[s] = struct{}{}
	h.follow()
	return s
}

// Close leaves the hub.
func (s *Subscription[K, V]) Close() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, open := h.subs[s]; !open {
		return
	}
	delete(h.subs, s)
	if len(h.subs) == 0 {
		h.leave()
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
			return Item[K, V]{End: true, Resumed: s.resumed, Revision: s.revision()}, true, nil
		}
		if len(s.queue) == 0 {
			return item, false, nil
		}
		if item, ok = s.next(); ok {
			item.Revision = s.revision()
			return item, true, nil
		}
	}
	return item, false, s.err
}

// next takes the first key of the queue; not ok when the reader knows already.
func (s *Subscription[K, V]) next() (Item[K, V], bool) {
	key := s.queue[0].key
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

// revision is up to where the reader was told of all changes. What waits is newer:
// a key whose value is replaced by a newer one keeps its place, and the revision of
// that.
func (s *Subscription[K, V]) revision() Revision {
	switch {
	case !s.ended:
		return s.from
	case len(s.queue) > 0:
		return s.queue[0].revision - 1
	default:
		return s.hub.history.now
	}
}

// start makes the snapshot of what the hub holds of keys.
func (s *Subscription[K, V]) start(keys []K) {
	s.live, s.left = true, len(keys)
	for _, key := range keys {
		s.queue = append(s.queue, place[K]{key, 0})
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
		s.queue = append(s.queue, place[K]{key, e.revision})
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
		s.put(key, &entry[V]{gone: true, revision: s.hub.history.now})
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
