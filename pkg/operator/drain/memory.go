package drain

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// drain is what was seen of one drain so far. Only what is said to people depends on
// it: a restarted operator goes on without. Its request's reconciliations, of which
// there is one at a time, own it.
type drain struct {
	since time.Time
	left  []leftover
	held  string // why nothing is evicted
	told  bool   // that it is too late
}

// look notes what a look at the node has shown. It returns whether it is held back for
// a reason that is new.
func (d *drain) look(left []leftover, held string) (news bool) {
	news = held != "" && held != d.held
	d.left, d.held = left, held
	return news
}

// memory has all drains. Its zero value is empty. It is safe for concurrent use.
type memory struct {
	mu  sync.Mutex
	all map[reconcile.Request]*drain
}

// of returns what is known of a drain; one that is new begins now.
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

// known returns what is known of a drain; nil: nothing.
func (m *memory) known(q reconcile.Request) *drain {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[q]
}

// forget is for a drain that is over.
func (m *memory) forget(q reconcile.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, q)
}
