package broadcast

// Item is one item of a subscription.
type Item[K comparable, V any] struct {
	Key   K
	Value V
	Gone  bool // the key has no value any more
	End   bool // end of the snapshot

	// Resumed is set on End if the snapshot holds only what has changed since the reader's
	// revision.
	Resumed bool
	// Revision is up to where the reader has received all changes, and can resume from. 0
	// before the end of the snapshot.
	Revision Revision
}

// Subscription is one reader of a hub. It is used by one goroutine, and guarded by the hub's
// lock.
type Subscription[K comparable, V any] struct {
	hub   *Hub[K, V]
	wants func(V) bool
	ready chan struct{}

	from    Revision // the reader had received all changes up to here before it joined; 0: none
	live    bool     // the snapshot is made
	resumed bool     // of what has changed since from
	ended   bool     // the end of the snapshot was returned
	left    int      // keys of the snapshot that the queue begins with
	err     error

	queue   []place[K]      // in the order of their revisions, after those of the snapshot
	pending map[K]*entry[V] // of exactly the keys in queue; nil: nothing to return any more
	told    map[K]Digest    // what the reader has, of keys that the hub follows
}

// place is a queued key, and the revision of its oldest unread change.
type place[K comparable] struct {
	key      K
	revision Revision
}

// Subscribe adds a reader for matching values. The subscription must be closed.
func (h *Hub[K, V]) Subscribe(wants func(V) bool) *Subscription[K, V] { return h.Resume(wants, 0) }

// Resume adds a reader that has received all changes up to a revision of this hub. It gets
// what has changed since if the hub still knows that, and a full snapshot otherwise.
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

// Close removes the subscription from the hub.
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

// Ready receives when Next may have more to return than at its last call.
func (s *Subscription[K, V]) Ready() <-chan struct{} { return s.ready }

// Next returns the next item; ok is false if there is none now. The error is ErrBehind or
// ErrClosed, and final.
func (s *Subscription[K, V]) Next() (item Item[K, V], ok bool, err error) {
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

// next removes the first key of the queue; false if the reader has its value already.
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
	if s.hub.current[key] != nil { // otherwise the entry would never be removed
		s.told[key] = e.digest
	}
	return Item[K, V]{Key: key, Value: e.value}, true
}

// revision returns up to where the reader has received all changes. Queued changes are newer:
// a key whose queued value is replaced keeps its position and revision.
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

// start makes the snapshot of keys from the hub's current values.
func (s *Subscription[K, V]) start(keys []K) {
	s.live, s.left = true, len(keys)
	for _, key := range keys {
		s.queue = append(s.queue, place[K]{key, 0})
		s.pending[key] = s.hub.current[key]
	}
	signal(s.ready)
}

// put queues a value, replacing an older one of the same key.
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

// forget handles the removal of a key from the hub.
func (s *Subscription[K, V]) forget(key K, tell bool) {
	_, was := s.told[key]
	_, queued := s.pending[key]
	switch {
	case !tell:
		delete(s.told, key) // a queued value is the last one
	case was:
		s.put(key, &entry[V]{gone: true, revision: s.hub.history.now})
	case queued:
		s.pending[key] = nil
	}
}

// fail ends the subscription and frees what it held.
func (s *Subscription[K, V]) fail(err error) {
	if s.err == nil {
		s.err, s.queue, s.pending, s.told = err, nil, nil, nil
		signal(s.ready)
	}
}
