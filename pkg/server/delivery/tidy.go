package delivery

import (
	"maps"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// TidyInterval is how often Tidy should be called. In between, at most one allowance is kept
// per instance that had files pushed since the last call.
const TidyInterval = 10 * time.Minute

// Tidy drops full allowances, problems of groups that are gone, and unused sources.
func (d *Delivery) Tidy(gone func(fleet.GroupKey) bool) {
	now := d.cfg.Now()
	var lost []fleet.GroupKey
	d.mu.Lock()
	maps.DeleteFunc(d.spent, func(_ fleet.InstanceID, a allowance) bool { return a.full(now) })
	told := maps.Clone(d.told)
	d.mu.Unlock()
	for key := range told {
		if gone(key) {
			lost = append(lost, key)
		}
	}
	d.mu.Lock()
	for _, key := range lost {
		delete(d.told, key)
	}
	d.mu.Unlock()
	d.sources.tidy(now)
}

// tidy drops sources unused for two lifetimes: each connected instance has its set rendered at
// least once in a lifetime.
func (s *sources) tidy(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.known, func(_ source, r *reading) bool {
		idle := r.under == nil && now.Sub(r.usedAt) > 2*sourceLife
		if idle {
			s.bytes -= len(r.content.body)
		}
		return idle
	})
}

// Entries counts the entries kept for instances, groups and sources.
func (d *Delivery) Entries() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sources.mu.Lock()
	defer d.sources.mu.Unlock()
	return len(d.sessions) + len(d.spent) + len(d.told) + len(d.sources.known)
}
