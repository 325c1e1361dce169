package reconcile_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

const (
	day          = 24 * time.Hour
	eligible     = 7 * day
	forced       = 30 * day
	onDemandAge  = day
	expirySlack  = time.Hour // for the others of a group that are of the same age, and for a change of leaders
	expiryMonths = 180 * day
)

// calendar watches a shard for half a year.
type calendar struct {
	s      *shard
	passes atomic.Int64 // of the loop
	left   map[string]int
}

// quiet lets an hour pass, and returns the number of passes without any effect.
func (c *calendar) quiet() int64 {
	passes, moves := c.passes.Load(), c.s.bucket.written()
	pass(time.Hour)
	if c.s.bucket.written() != moves {
		return 0
	}
	return c.passes.Load() - passes
}

// passes counts passes: each pass reads the settings.
type passes struct {
	*wanted
	n *atomic.Int64
}

func (p passes) Settings() plan.Settings {
	p.n.Add(1)
	return p.wanted.Settings()
}

// leave checks a write that may begin an instance's removal. The bucket is locked.
func (c *calendar) leave(op string, i fleet.Instance) {
	if op != "update-draining" {
		return
	}
	t, age := c.s.t, time.Since(i.ID.Time())
	c.left[i.Reason]++
	bound := map[string]time.Duration{
		plan.ReasonExpired: eligible, plan.ReasonForcedExpiry: forced, plan.ReasonOnDemandExpired: onDemandAge,
	}[i.Reason]
	if bound == 0 || i.Drain == nil || age < bound || age > bound+expirySlack {
		t.Errorf("%s of %s leaves because of %q at the age of %s", i.ID, i.Group, i.Reason, age)
	}
	if i.OnDemand {
		return
	}
	for _, o := range c.s.bucket.records {
		if o.GroupKey() != i.GroupKey() || o.OnDemand || o.ID == i.ID {
			continue
		}
		if o.Phase == fleet.Running && o.ID.Time().Before(i.ID.Time()) {
			t.Errorf("%s leaves before %s, which is older", i.ID, o.ID)
		}
		if o.Phase == fleet.Draining && i.Reason == plan.ReasonExpired {
			t.Errorf("%s leaves while %s does", i.ID, o.ID)
		}
	}
	if running, _ := c.s.bucket.count(i.GroupKey()); running < c.s.wanted.groups[i.GroupKey()].Size {
		t.Errorf("%s leaves %d behind", i.ID, running)
	}
}

// newCalendar has two groups: web is calm, and db drains an instance all the time, so that it
// replaces none before the forced age.
func newCalendar(s *shard) *calendar {
	c := &calendar{s: s, left: map[string]int{}}
	s.adjust = func(cfg *reconcile.Config) {
		cfg.Groups = passes{s.wanted, &c.passes}
		cfg.SweepInterval = 12 * time.Hour
	}
	set := &s.wanted.settings
	set.ReportInterval, set.EligibleAge, set.ForcedAge, set.OnDemandAge = 2*time.Hour, eligible, forced, onDemandAge
	set.MissedReports = 10_000 // otherwise the check for missed reports adds passes
	s.wanted.edit(web, func(g *fleet.Group) { g.Size, g.DrainTimeout = 3, 5*time.Minute })
	s.wanted.edit(db, func(g *fleet.Group) { g.Size, g.DrainTimeout = 2, 2*expiryMonths })
	s.lead()
	pass(time.Minute)
	first := s.expectRunning(db, 2)[0]
	s.wanted.edit(db, func(g *fleet.Group) { g.Leaving = []fleet.InstanceID{first} })
	s.term.Enqueue(db)
	pass(time.Minute)
	s.wanted.edit(db, func(g *fleet.Group) { g.DrainTimeout = 5 * time.Minute })
	s.bucket.onWrite = c.leave
	return c
}

// TestExpiryInMonths: half a year passes, with occasional on-demand instances and a change of
// leaders every eleven days.
func TestExpiryInMonths(t *testing.T) {
	for name, changes := range map[string]bool{"one leader": false, "many leaders": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{Boot: fake.Fixed(30 * time.Second)}, func(t *testing.T, s *shard) {
				c := newCalendar(s)
				demanded, idle := 0, int64(0)
				for hour := range int(expiryMonths / time.Hour) {
					idle += c.quiet()
					if hour%100 == 0 && time.Duration(hour)*time.Hour < expiryMonths-2*day {
						s.demand(web)
						demanded++
					}
					if changes && hour%(11*24) == 200 {
						_ = s.stop()
						pass(30 * time.Second)
						s.lead()
					}
					c.ages()
				}
				c.sums(demanded)
				if idle > 10 && !changes { // some of db reach the age, but must stay
					t.Errorf("%d looks at groups in hours in which nothing was to be done", idle)
				}
			})
		})
	}
}

// ages checks the age of every running instance against the limit of its kind.
func (c *calendar) ages() {
	bounds := map[fleet.GroupKey]time.Duration{web: eligible, db: forced}
	for _, r := range c.s.bucket.all() {
		bound := bounds[r.GroupKey()]
		if r.OnDemand {
			bound = onDemandAge
		}
		if age := time.Since(r.ID.Time()); r.Phase.Active() && age > bound+expirySlack {
			c.s.t.Fatalf("%s of %s is %s old: %s", r.ID, r.Group, age, c.s.dump())
		}
	}
}

// sums compares what happened with the expectation.
func (c *calendar) sums(demanded int) {
	t := c.s.t
	weeks, months := int(expiryMonths/(eligible+expirySlack)), int(expiryMonths/(forced+expirySlack))
	for reason, want := range map[string]int{
		plan.ReasonExpired: 3 * weeks, plan.ReasonForcedExpiry: 2 * months, plan.ReasonOnDemandExpired: demanded,
	} {
		if got := c.left[reason]; got < want || got > want+3 {
			t.Errorf("%d left because of %s, want about %d", got, reason, want)
		}
	}
	events := c.left[plan.ReasonExpired] + c.left[plan.ReasonForcedExpiry] + demanded
	calls := c.s.world.Calls(fake.OpCreate, fake.OpGet, fake.OpDelete)
	if n := c.passes.Load(); n > int64(30*events) {
		t.Errorf("%d passes for %d events", n, events)
	}
	if len(calls) > 10*events {
		t.Errorf("%d calls to the provider for %d events", len(calls), events)
	}
}
