package broadcast

import "time"

// Revision counts the changes that a hub has seen. It is good in that hub only.
type Revision uint64

// history says from which revisions a reader can resume: of a key that is followed
// the hub knows in which revision it became what it is; of those that it has
// forgotten, only the highest one. The hub's lock guards it.
type history struct {
	now       Revision    // of the last change
	forgotten Revision    // who was not told of all changes up to here has missed one for good
	rests     *time.Timer // ends the looking that nobody reads; nil: somebody does, or it has ended
}

// newHistory begins at 1, because 0 stands for a reader that knows nothing.
func newHistory() history { return history{now: 1, forgotten: 1} }

func (h *history) next() Revision {
	h.now++
	return h.now
}

// forget notes that a change can't be told of any more.
func (h *history) forget(r Revision) { h.forgotten = max(h.forgotten, r) }

// covers reports whether all changes after a revision are known.
func (h *history) covers(from Revision) bool { return from >= h.forgotten && from <= h.now }

// follow begins to look at keys, or goes on to, and at all of them first. The hub's
// lock is held.
func (h *Hub[K, V]) follow() {
	if h.history.rests != nil {
		h.history.rests.Stop()
		h.history.rests = nil
	}
	h.marks.want(true)
	h.marks.addAll()
}

// leave ends that, at once or after a while, now that nobody reads. The hub's lock is
// held.
func (h *Hub[K, V]) leave() {
	if h.cfg.Linger <= 0 || h.closed {
		h.rest()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(h.cfg.Linger, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.history.rests == timer {
			h.rest()
		}
	})
	h.history.rests = timer
}

// rest stops looking, and forgets everything.
func (h *Hub[K, V]) rest() {
	h.history.rests = nil
	h.marks.want(false)
	clear(h.current)
	h.history.forget(h.history.next())
}
