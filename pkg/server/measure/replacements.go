package measure

import (
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/metrics/prometheus"
)

// maxReplacements bounds the replacements that are followed at a time.
const maxReplacements = 10_000

// Replacements measures how long it takes to replace lost instances: from the first sign of a
// loss until the create is called, the replacement registers, and is ready. The methods
// of a nil one do nothing.
type Replacements struct {
	took *prometheus.Histogram

	mu   sync.Mutex
	open map[fleet.InstanceID]*replacement
}

type replacement struct {
	lost       time.Time
	registered bool
}

func newReplacements(r *prometheus.Registry) *Replacements {
	return &Replacements{
		took: r.Histogram("nstance_replacement_duration_seconds",
			"Time from the first sign that an instance was lost until the create of its replacement is called (created), "+
				"the replacement registers (registered), and it is ready, with its files (ready).",
			[]float64{0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800}, "stage"),
		open: map[fleet.InstanceID]*replacement{},
	}
}

// Created records that the create of a replacement is called. If it is called again for the same
// instance, only the first call counts.
func (r *Replacements) Created(id fleet.InstanceID, lost, now time.Time) {
	if r == nil || lost.IsZero() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[id] == nil && len(r.open) < maxReplacements {
		r.open[id] = &replacement{lost: lost}
		r.took.Observe(now.Sub(lost), "created")
	}
}

// Changed records what has become of an instance: whether it has registered, and whether it
// is ready.
func (r *Replacements) Changed(id fleet.InstanceID, phase fleet.Phase, ready bool, now time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.open[id]
	if x == nil {
		return
	}
	if phase == fleet.Running && !x.registered {
		x.registered = true
		r.took.Observe(now.Sub(x.lost), "registered")
	}
	switch {
	case phase == fleet.Running && ready:
		r.took.Observe(now.Sub(x.lost), "ready")
		delete(r.open, id)
	case !phase.Active():
		delete(r.open, id)
	}
}

// Follows reports whether an instance is a replacement that is not ready.
func (r *Replacements) Follows(id fleet.InstanceID) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open[id] != nil
}

// End forgets the replacements of a term.
func (r *Replacements) End() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.open)
}
