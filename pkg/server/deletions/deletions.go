// Package deletions tracks how the deletions of machines progress: when to ask the provider again,
// and which of them are problems, because they were refused permanently or do not end. Times and
// answers go in; it uses no clock.
package deletions

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// Tracker tracks the deletions in progress of each group, while the instance's phase is
// deleting. Safe for concurrent use.
type Tracker struct {
	mu  sync.Mutex
	all map[fleet.GroupKey]map[fleet.InstanceID]*deletion
}

// New returns a Tracker without deletions.
func New() *Tracker {
	return &Tracker{all: map[fleet.GroupKey]map[fleet.InstanceID]*deletion{}}
}

// Start begins to track a deletion. If an earlier leader began it, its start is derived from
// the record's drain, if there is one.
func (d *Tracker) Start(before, r fleet.Instance, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := r.GroupKey()
	if d.all[key] == nil {
		d.all[key] = map[fleet.InstanceID]*deletion{}
	}
	if d.all[key][r.ID] != nil {
		return
	}
	since := now
	if before.Phase == fleet.Deleting && r.Drain != nil {
		if since = r.Drain.DeleteAt; r.Drain.AckedAt != nil {
			since = *r.Drain.AckedAt
		}
		if since.After(now) { // the drain ended early
			since = now
		}
	}
	d.all[key][r.ID] = &deletion{since: since}
}

// Answered records the answer to a delete of a record's machine, and returns when the next one is
// due.
func (d *Tracker) Answered(r fleet.Instance, err error, now time.Time) (again time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.all[r.GroupKey()][r.ID]; known != nil {
		return known.answered(err, now)
	}
	return now // ended meanwhile
}

// Check returns the problems to report for a group's deletions, the reported ones that have
// ended, and when to check again (zero: not without an event). Ended deletions are dropped.
func (d *Tracker) Check(
	key fleet.GroupKey, underWay func(fleet.InstanceID) bool, now time.Time,
) (told []fleet.Problem, over []fleet.InstanceID, again time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(d.all[key])) {
		one := d.all[key][id]
		if !underWay(id) {
			if one.problem.Message != "" {
				over = append(over, id)
			}
			delete(d.all[key], id)
			continue
		}
		p, at := one.check(id, key, now)
		if p != nil {
			told = append(told, *p)
		}
		again = plan.Sooner(again, at)
	}
	if len(d.all[key]) == 0 {
		delete(d.all, key)
	}
	return told, over, again
}
