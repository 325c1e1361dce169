package broadcast

import "time"

// Revision counts the changes that a hub has seen. It is valid for that hub only.
type Revision uint64

// history tells from which revisions a reader can resume. For each key that it follows the hub
// knows the revision of its value; of dropped keys, only the highest. Guarded by the hub's
// lock.
type history struct {
	now       Revision    // of the last change
	forgotten Revision    // a reader older than this has missed a change that can't be replayed
	rests     *time.Timer // stops following without readers; nil if there are readers or it has fired
}

// newHistory starts at 1, because 0 stands for a new reader.
func newHistory() history { return history{now: 1, forgotten: 1} }

func (h *history) next() Revision {
	h.now++
	return h.now
}

// forget records that a change can no longer be replayed.
func (h *history) forget(r Revision) { h.forgotten = max(h.forgotten, r) }

// covers reports whether all changes after a revision are known.
func (h *history) covers(from Revision) bool { return from >= h.forgotten && from <= h.now }

// follow starts or continues to follow keys, and first reads all of them. The hub's lock is
// held.
func (h *Hub[K, V]) follow() {
	if h.history.rests != nil {
		h.history.rests.Stop()
		h.history.rests = nil
	}
	h.marks.want(true)
	h.marks.addAll()
}

// leave stops following, at once or after cfg.Linger, because no reader is left. The hub's
// lock is held.
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

// rest stops following and drops everything.
func (h *Hub[K, V]) rest() {
	h.history.rests = nil
	h.marks.want(false)
	clear(h.current)
	h.history.forget(h.history.next())
}
