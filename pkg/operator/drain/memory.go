package drain

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// drain is what was observed of one drain. Events depend on it, and so does how soon a missing
// Node counts as gone; a restarted operator begins without. It is owned by its request's
// reconciliations, which never run concurrently.
type drain struct {
	since time.Time
	left  []leftover
	held  string // why nothing is evicted; empty if evictions proceed
	told  bool   // that it is too late

	node    string    // the name of the Node that was observed; empty: none
	goneAt  time.Time // since when the Node has been missing; zero: it isn't
	emptyAt time.Time // when the Node was first seen without pods; zero: not yet
	doubted bool      // the Node is ambiguous, and counted as such

	blocked   string    // what was reported to be in the way; empty: nothing
	blockedAt time.Time // when
}

// nodeGrace is how long a Node must be missing to count as gone: a Node that is recreated is
// missing for a moment.
const nodeGrace = 10 * time.Second

// justWent records which Node was observed (empty: none), and reports whether one that was
// there may be recreated. seen: one was there, before this drain too.
func (d *drain) justWent(node string, seen bool, now time.Time) bool {
	switch {
	case node != "":
		d.node, d.goneAt = node, time.Time{}
		return false
	case d.node == "" && !seen:
		return false
	case d.goneAt.IsZero():
		d.goneAt = now
	}
	return now.Sub(d.goneAt) < nodeGrace
}

// empty records that the Node has no pods, and returns since when.
func (d *drain) empty(now time.Time) time.Time {
	if d.emptyAt.IsZero() {
		d.emptyAt = now
	}
	return d.emptyAt
}

// observe records what is left on the node. It reports whether the drain is held back for a
// new reason.
func (d *drain) observe(left []leftover, held string) (news bool) {
	news = held != "" && held != d.held
	d.left, d.held = left, held
	return news
}

// memory holds all drains. Its zero value is empty. It is safe for concurrent use.
type memory struct {
	mu  sync.Mutex
	all map[reconcile.Request]*drain
}

// of returns what is known of a drain; an unknown drain begins now.
func (m *memory) of(q reconcile.Request, now time.Time) *drain {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.all[q]; d != nil {
		return d
	}
	if m.all == nil {
		m.all = map[reconcile.Request]*drain{}
	}
	d := &drain{since: now}
	m.all[q] = d
	return d
}

// known returns what is known of a drain; nil if nothing.
func (m *memory) known(q reconcile.Request) *drain {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[q]
}

// forget drops a drain that is over.
func (m *memory) forget(q reconcile.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, q)
}
