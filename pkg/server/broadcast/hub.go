package broadcast

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Digest identifies what matters of a value: two values with the same one are
// the same to readers.
type Digest [32]byte

// Config is what a Hub needs. Its functions are called by the goroutine of Run
// alone, without any lock.
type Config[K comparable, V any] struct {
	// Keys lists the keys of all that there is now.
	Keys func() []K
	// Look returns the value of a key as it is now; not ok when there is none, or
	// none any more. last is what the last look returned, if known says so.
	Look   func(key K, last V, known bool) (v V, ok bool)
	Digest func(V) Digest
	// Compare orders the keys of a snapshot.
	Compare func(a, b K) int
	// Initial reports whether a value belongs into a snapshot.
	Initial func(V) bool
	// TellGone: that there is no value any more is an event of its own, for those
	// who were told of one. Without it a key just leaves the set in silence.
	TellGone bool
	// Last reports whether a value is the last word on its key, so that the key may
	// leave without being missed by those who resume. nil: none is.
	Last func(V) bool
	// Linger is how long keys are followed on when the last reader has left, so that
	// it can come back and resume; 0: nothing can be resumed after that.
	Linger time.Duration
	// MaxPending is how many changed keys may wait for one reader.
	MaxPending int
}

// The pace of a hub.
const (
	// lookPause is between the beginnings of two rounds of looking at most often.
	// A round that takes long makes the pause longer, so that looking costs a tenth
	// of one core, up to a second: a drain is not to be told of later than that.
	lookPause    = 100 * time.Millisecond
	lookShare    = 10
	maxLookPause = time.Second
	// ResyncInterval is how often all keys are looked at while somebody reads, for
	// what changes by the mere passing of time.
	ResyncInterval = time.Minute
)

// Hub follows a set of keyed values. Its methods are safe for concurrent use.
type Hub[K comparable, V any] struct {
	cfg   Config[K, V]
	marks marks[K]

	mu      sync.Mutex
	closed  bool
	current map[K]*entry[V] // as last looked at; empty while nothing is followed
	subs    map[*Subscription[K, V]]struct{}
	history history
}

// entry is one value, or that there is none any more. It never changes.
type entry[V any] struct {
	value    V
	digest   Digest
	revision Revision // in which it became so
	gone     bool
}

// NewHub returns a hub that works once Run runs.
func NewHub[K comparable, V any](cfg Config[K, V]) *Hub[K, V] {
	if cfg.Last == nil {
		cfg.Last = func(V) bool { return false }
	}
	return &Hub[K, V]{
		cfg: cfg, marks: newMarks[K](),
		current: map[K]*entry[V]{}, subs: map[*Subscription[K, V]]struct{}{}, history: newHistory(),
	}
}

// Mark tells that something of a key may have changed. It returns at once, and
// is to be called after the change can be seen.
func (h *Hub[K, V]) Mark(key K) { h.marks.add(key) }

// Resync tells that anything may have changed.
func (h *Hub[K, V]) Resync() { h.marks.addAll() }

// Run looks at what is marked until ctx ends, which ends all subscriptions.
func (h *Hub[K, V]) Run(ctx context.Context) {
	defer h.close()
	resync := time.NewTicker(ResyncInterval)
	defer resync.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-resync.C:
			h.Resync()
			continue
		case <-h.marks.wake:
		}
		began := time.Now()
		h.round()
		pause := max(lookPause, min(lookShare*time.Since(began), maxLookPause))
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// round looks at all that is marked, and makes the snapshots of those who joined.
func (h *Hub[K, V]) round() {
	keys, all := h.marks.take()
	var joined []*Subscription[K, V]
	if all {
		// Who has joined by now is told of what is different from what is read below.
		joined = h.waiting()
		keys = h.everything(keys)
	}
	for key := range keys {
		h.look(key)
	}
	h.begin(joined)
}

// waiting returns the subscriptions that have no snapshot yet.
func (h *Hub[K, V]) waiting() (joined []*Subscription[K, V]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		if !s.live {
			joined = append(joined, s)
		}
	}
	return joined
}

// everything adds all keys that are there now, or were at the last look.
func (h *Hub[K, V]) everything(keys map[K]struct{}) map[K]struct{} {
	for _, key := range h.cfg.Keys() {
		keys[key] = struct{}{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range h.current {
		keys[key] = struct{}{}
	}
	return keys
}

// look finds out what a key's value is now, and passes on what is different.
func (h *Hub[K, V]) look(key K) {
	h.mu.Lock()
	old := h.current[key]
	h.mu.Unlock()
	var last V
	if old != nil {
		last = old.value
	}
	v, ok := h.cfg.Look(key, last, old != nil)
	if !ok {
		h.forget(key)
		return
	}
	h.publish(key, &entry[V]{value: v, digest: h.cfg.Digest(v)})
}

func (h *Hub[K, V]) publish(key K, e *entry[V]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.current[key]
	h.current[key] = e
	if old != nil && old.digest == e.digest {
		e.revision = old.revision
		return
	}
	e.revision = h.history.next()
	for s := range h.subs {
		if s.live && s.wants(e.value) {
			s.put(key, e)
		}
	}
}

func (h *Hub[K, V]) forget(key K) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.current[key]
	if old == nil {
		return
	}
	delete(h.current, key)
	if h.cfg.Last(old.value) {
		h.history.forget(old.revision)
	} else {
		h.history.forget(h.history.next()) // that it left is a change too
	}
	for s := range h.subs {
		if s.live {
			s.forget(key, h.cfg.TellGone)
		}
	}
}

// begin gives subscriptions their snapshots: to one that resumes what has changed
// since, to all others everything.
func (h *Hub[K, V]) begin(joined []*Subscription[K, V]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range joined {
		if s.resumed = h.history.covers(s.from); !s.resumed {
			s.from = 0
		}
		var keys []K
		for key, e := range h.current {
			switch {
			case !s.wants(e.value):
			case s.resumed && e.revision <= s.from:
				s.told[key] = e.digest
			case s.resumed || h.cfg.Initial(e.value):
				keys = append(keys, key)
			}
		}
		slices.SortFunc(keys, h.cfg.Compare)
		s.start(keys)
	}
}

// close ends all subscriptions, and those to come.
func (h *Hub[K, V]) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for s := range h.subs {
		s.fail(ErrClosed)
	}
	if h.history.rests != nil {
		h.history.rests.Stop()
		h.rest()
	}
}
