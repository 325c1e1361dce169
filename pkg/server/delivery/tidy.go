package delivery

import (
	"maps"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// TidyInterval is how often Tidy is to be called. Until then there is one allowance at
// most for each instance that had files pushed since the last time.
const TidyInterval = 10 * time.Minute

// Tidy forgets what says nothing any more: allowances that are whole again, the
// problems of groups that are gone, and sources that nobody has asked for of late.
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

// tidy drops the sources that no set was rendered from for as long as two of them
// live: each instance that is there has its set rendered anew at least once in a life.
func (s *sources) tidy(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.known, func(_ source, r *reading) bool {
		idle := r.under == nil && now.Sub(r.usedAt) > 2*sourceLife
		if idle {
			s.bytes -= len(r.content)
		}
		return idle
	})
}

// Entries counts what is kept for single instances, groups and sources.
func (d *Delivery) Entries() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sources.mu.Lock()
	defer d.sources.mu.Unlock()
	return len(d.sessions) + len(d.spent) + len(d.told) + len(d.sources.known)
}
