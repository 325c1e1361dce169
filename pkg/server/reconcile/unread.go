package reconcile

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/schedule"
)

// certainty holds back actions that take a working instance since others of its group seem to work,
// until the records of the group have been read in this term: a listing may be late, and show instances as
// running that leave already. What replaces an instance that has died, and what an instance goes for by
// itself, is not held back. Safe for concurrent use.
type certainty struct {
	ledger   Ledger
	schedule *schedule.Schedule
	reports  *reporter
	workers  *sync.WaitGroup
	timeout  func() time.Duration // of a read
	reads    *slots               // of all groups

	mu     sync.Mutex
	groups map[fleet.GroupKey]*reading
}

// reading is the state of reading a group's records.
type reading struct {
	busy      bool
	failures  int       // since the last success
	told      string    // the last error
	notBefore time.Time // of the next attempt
}

func newCertainty(l *Loop) *certainty {
	return &certainty{
		ledger: l.cfg.Ledger, schedule: l.schedule, reports: l.reports, workers: &l.workers, timeout: l.requestTimeout,
		reads: newSlots(recalls), groups: map[fleet.GroupKey]*reading{},
	}
}

// only returns those of the actions that are not held back. If it holds any back, it reads the records, after
// which the group is decided again.
func (c *certainty) only(ctx context.Context, v plan.View, actions []plan.Action) []plan.Action {
	key := v.Group.Key
	held := func(a plan.Action) bool { return takesOneTooMany(v, a) }
	if !slices.ContainsFunc(actions, held) {
		return actions
	}
	unread := c.ledger.Unread(key)
	if len(unread) == 0 {
		return actions
	}
	if c.begin(key, v.Now) {
		c.workers.Go(func() { c.end(ctx, key, c.read(ctx, key, unread)) })
	}
	return slices.DeleteFunc(slices.Clone(actions), held)
}

// takesOneTooMany reports whether an action removes an instance that may be working, since others do.
func takesOneTooMany(v plan.View, a plan.Action) bool {
	if a.Kind != plan.Drain && a.Kind != plan.Delete || !plan.DependsOnOthers(a.Reason) {
		return false
	}
	i := v.Find(a.ID)
	return i != nil && i.Phase == fleet.Running
}

// begin reports whether to read a group's records now. If it is too early after a failure, the group is
// decided again in time.
func (c *certainty) begin(key fleet.GroupKey, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.groups[key]
	if r == nil {
		r = &reading{}
		c.groups[key] = r
	}
	if r.busy {
		return false
	}
	if now.Before(r.notBefore) {
		c.schedule.MarkAt(key, r.notBefore)
		return false
	}
	r.busy = true
	return true
}

// read reads all records that it can, and returns the first error.
func (c *certainty) read(ctx context.Context, key fleet.GroupKey, unread []fleet.InstanceID) error {
	errs := make([]error, len(unread))
	var all sync.WaitGroup
	for n, id := range unread {
		free, err := c.reads.acquire(ctx)
		if err != nil {
			errs[n] = err
			break
		}
		all.Go(func() {
			defer free()
			within, cancel := context.WithTimeout(ctx, c.timeout())
			defer cancel()
			errs[n] = c.ledger.Confirm(within, key.Tenant, id)
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			err = fmt.Errorf("no working instance of group %s is taken until its records are read: %w", key, err)
			return problems.Because(problems.ReasonStorage, err)
		}
	}
	return nil
}

// end notes the outcome. An error that is as the last one is not reported again.
func (c *certainty) end(ctx context.Context, key fleet.GroupKey, err error) {
	c.mu.Lock()
	r, repeated := c.groups[key], false
	if err == nil {
		delete(c.groups, key)
	} else {
		repeated = r.told == err.Error()
		r.busy, r.told, r.notBefore = false, err.Error(), time.Now().Add(stepBackoff().Delay(r.failures))
		r.failures++
	}
	c.mu.Unlock()
	c.schedule.Mark(key)
	if !repeated {
		c.reports.fail(ctx, err, key, "")
	}
}
