package broadcast

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Digest identifies a value for readers: values with equal digests are the same to them.
type Digest [32]byte

// Config is what a Hub needs. Its functions are called only by the goroutine of Run, without a
// lock.
type Config[K comparable, V any] struct {
	// Keys lists all current keys.
	Keys func() []K
	// Look returns the current value of a key; ok is false if it has none. last is the value
	// of the previous call, if known.
	Look   func(key K, last V, known bool) (v V, ok bool)
	Digest func(V) Digest
	// Compare orders the keys of a snapshot.
	Compare func(a, b K) int
	// Initial reports whether a value belongs in a snapshot.
	Initial func(V) bool
	// TellGone: the removal of a key is an event, for readers that received a value of it.
	// Otherwise keys are removed silently.
	TellGone bool
	// Last reports whether a value is final for its key, so that readers that resume need not
	// be told of the key's removal. nil: none is final.
	Last func(V) bool
	// Linger is how long keys are still followed after the last reader left, so that it can
	// resume; 0: it can't.
	Linger time.Duration
	// MaxPending is how many changed keys may be queued for one reader.
	MaxPending int
}

// The rate of a hub.
const (
	// lookPause is the shortest pause between two rounds. A round that takes long makes the
	// pause longer, up to maxLookPause, so that rounds cost a tenth of one core. The bound is
	// a second, because drains must not be reported later than that.
	lookPause    = 100 * time.Millisecond
	lookShare    = 10
	maxLookPause = time.Second
	// ResyncInterval is how often all keys are read while there are readers, for values that
	// change with time alone.
	ResyncInterval = time.Minute
)

// Hub follows a set of keyed values. Its methods are safe for concurrent use.
type Hub[K comparable, V any] struct {
	cfg   Config[K, V]
	marks marks[K]

	mu      sync.Mutex
	closed  bool
	current map[K]*entry[V] // as last read; empty while nothing is followed
	subs    map[*Subscription[K, V]]struct{}
	history history
}

// entry is the value of a key, or the fact that it has none any more. Immutable.
type entry[V any] struct {
	value    V
	digest   Digest
	revision Revision // of the change to this value
	gone     bool
}

// NewHub returns a hub that works while Run runs.
func NewHub[K comparable, V any](cfg Config[K, V]) *Hub[K, V] {
	if cfg.Last == nil {
		cfg.Last = func(V) bool { return false }
	}
	return &Hub[K, V]{
		cfg: cfg, marks: newMarks[K](),
		current: map[K]*entry[V]{}, subs: map[*Subscription[K, V]]struct{}{}, history: newHistory(),
	}
}

// Mark records that the value of a key may have changed. It returns at once, and must be
// called after the change is visible.
func (h *Hub[K, V]) Mark(key K) { h.marks.add(key) }

// Resync records that any value may have changed.
func (h *Hub[K, V]) Resync() { h.marks.addAll() }

// Run reads marked keys until ctx ends, which ends all subscriptions.
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

// round reads all marked keys, and makes the snapshots of new subscriptions.
func (h *Hub[K, V]) round() {
	keys, all := h.marks.drain()
	var joined []*Subscription[K, V]
	if all {
		// These subscriptions are sent whatever changes after the reads below.
		joined = h.waiting()
		keys = h.everything(keys)
	}
	for key := range keys {
		h.refresh(key)
	}
	h.startSubscriptions(joined)
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

// everything adds all current keys and those of the last round.
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

// refresh reads the current value of a key, and publishes it if it differs.
func (h *Hub[K, V]) refresh(key K) {
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
		h.history.forget(h.history.next()) // the removal is a change too
	}
	for s := range h.subs {
		if s.live {
			s.forget(key, h.cfg.TellGone)
		}
	}
}

// startSubscriptions makes the snapshots of subscriptions: what has changed since for one that
// resumes, everything for the others.
func (h *Hub[K, V]) startSubscriptions(joined []*Subscription[K, V]) {
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

// close ends all current and future subscriptions.
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
