package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// deletions are those under way, of each group, for as long as the record of the
// instance says so. Safe for concurrent use.
type deletions struct {
	mu  sync.Mutex
	all map[fleet.GroupKey]map[fleet.InstanceID]*deletion
}

func newDeletions() *deletions {
	return &deletions{all: map[fleet.GroupKey]map[fleet.InstanceID]*deletion{}}
}

// begin takes note of a deletion. One that an earlier leader began is taken to be as
// old as its record tells, if it does.
func (d *deletions) begin(before, r fleet.Instance, now time.Time) {
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
		if since.After(now) { // it did not last to its end
			since = now
		}
	}
	d.all[key][r.ID] = &deletion{since: since}
}

func (d *deletions) answered(r fleet.Instance, err error, now time.Time) (again time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.all[r.GroupKey()][r.ID]; known != nil {
		return known.answered(err, now)
	}
	return now // it has ended meanwhile
}

// look says what is to be told of a group's deletions, which of those told of are
// over, and when to look again (zero: not before something happens). One that is not
// under way any more is forgotten.
func (d *deletions) look(
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
		p, at := one.look(id, key, now)
		if p != nil {
			told = append(told, *p)
		}
		again = sooner(again, at)
	}
	if len(d.all[key]) == 0 {
		delete(d.all, key)
	}
	return told, over, again
}

// problems are those of a group that last, the oldest first.
func (d *deletions) problems(key fleet.GroupKey) (all []fleet.Problem) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range d.all[key] {
		if one.problem.Message != "" {
			all = append(all, one.problem)
		}
	}
	slices.SortFunc(all, func(a, b fleet.Problem) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Instance, b.Instance)) })
	return all
}

func (d *deletions) groups() []fleet.GroupKey {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.all))
}

// askedToDelete takes over the provider's answer to a delete. What was only throttled
// is no failure: it comes again when its turn comes.
func (l *Loop) askedToDelete(r fleet.Instance, err error) error {
	now := time.Now()
	again := l.deletions.answered(r, err, now)
	l.observed.with(r.ID, func(b *observation) { b.retryAt = again })
	switch {
	case errors.Is(err, provider.ErrThrottled):
		return nil
	case err != nil && refusedForGood(err): // told of by watchDeletions, until it is over
		l.schedule.mark(r.GroupKey())
		return because(ReasonDeleteRefused, fmt.Errorf("delete instance %s: %w", r.ID, err))
	case err != nil:
		return because(ReasonProvider, fmt.Errorf("delete instance %s: %w", r.ID, err))
	}
	l.log.Info("delete accepted", slog.String("instance", string(r.ID)), slog.String("reason", r.Reason))
	l.poller.poll(r.ID, now)
	return nil
}

// watchDeletions tells of those deletions of a group that do not end.
func (l *Loop) watchDeletions(key fleet.GroupKey, now time.Time) {
	told, over, again := l.deletions.look(key, func(id fleet.InstanceID) bool {
		r, ok := l.cfg.Ledger.Get(id)
		return ok && r.Phase == fleet.Deleting
	}, now)
	for _, p := range told {
		l.report(&p)
	}
	for _, id := range over {
		l.log.Info("the deletion has ended after all", slog.String("instance", string(id)), slog.String("group", key.String()))
		l.cfg.Changed(key, id)
	}
	l.schedule.markAt(key, again)
}
