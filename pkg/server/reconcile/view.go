package reconcile

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// view gathers everything that a decision about one group depends on, and
// whether the group is defined. It is good until the next one is gathered.
//
// The order matters: a worker takes its instance out of those being created, or
// ends its being busy, only after the ledger shows what it did. So the creates
// are read before the ledger, and the ledger while nothing can end its being
// busy: an instance can be seen twice here but never missed.
func (l *Loop) view(key fleet.GroupKey, now time.Time) (plan.View, bool) {
	g, defined := l.cfg.Groups.Group(key)
	g.Key = key
	settings := l.cfg.Groups.Settings()
	begun := l.launcher.of(key)
	l.pacing.renew(g)
	at := moment{
		now: now, settings: settings, isAwaited: l.witness.last == awaited, isThrottled: l.cloud.mutations.rate() > 0,
	}
	all := l.observed.join(l.cfg.Ledger, g, begun, at, l.viewed[:0])
	l.viewed = all.instances
	if l.pacing.awaitsSurvivors(g) {
		l.schedule.markAt(key, l.pacing.survive(g, l.observed.living(all.instances, g, now, nil), now))
	}
	pace := l.pacing.pace(g)
	if pace.Trials > 0 {
		l.schedule.markAt(key, all.settles) // then another may be tried, or none is wanted any more
	}
	instances := all.instances
	l.resumable.keep(key, instances)
	for n := range instances {
		i := &instances[n]
		// A record that an idempotency key names is wanted whenever it lands: a
		// tombstone would make the key name a dead instance before the caller
		// was answered. Nothing has acted on it, and its id makes no second
		// one.
		i.Stray = !i.Busy && i.Phase == fleet.Pending && i.RequestKey == "" && i.Epoch < l.cfg.Fence.Epoch() &&
			!l.resumable[key][i.ID]
	}
	// After the records: one that becomes readable meanwhile must not count as an
	// instance and fill a place beside it.
	g.Size = max(0, g.Size-l.sweeper.filled(key, func(id fleet.InstanceID) bool {
		return find(instances, id) != nil
	}))
	l.schedule.markAt(key, all.again)
	return plan.View{
		Now: now, Group: g, Settings: settings, Instances: instances, Takeover: *l.takeover.Load(), Pace: pace,
		Surge: l.surges.granted(key, l.tuning.Load().MaxSurge),
	}, defined
}

// find returns the instance of an id among those of a view; nil: there is none.
func find(instances []plan.Instance, id fleet.InstanceID) *plan.Instance {
	n, ok := slices.BinarySearchFunc(instances, id, func(i plan.Instance, id fleet.InstanceID) int { return cmp.Compare(i.ID, id) })
	if !ok {
		return nil
	}
	return &instances[n]
}

// moment is when instances are looked at, and by what.
type moment struct {
	now       time.Time
	settings  plan.Settings
	isAwaited bool // whether the absence of VMs is real

	isThrottled bool // creates wait for their turn
}

// joined are a group's instances as a decision sees them.
type joined struct {
	instances []plan.Instance
	again     time.Time // when a step is due again that failed
	settles   time.Time // when the next one has settled if it lives
}

// join returns a group's records, and the creates that have begun and are not
// recorded yet, with what is known beyond them, in the order of their ids. While it
// is awaited whether the absence of VMs is real, they are shown as alive and busy, so
// that it decides nothing.
//
// The instances are put into the room that is given.
func (o *observations) join(l Ledger, g fleet.Group, begun []fleet.Instance, at moment, room []plan.Instance) (j joined) {
	o.mu.Lock()
	defer o.mu.Unlock()
	records := l.Group(g.Key)
	j.instances = slices.Grow(room, len(records)+len(begun))
	unrecorded := make(map[fleet.InstanceID]fleet.Instance, len(begun))
	for _, x := range begun {
		unrecorded[x.ID] = x
	}
	for n := range records {
		b := o.observation(records[n].ID)
		j.add(b, records[n], at)
		b.judge(&records[n], at)
		delete(unrecorded, records[n].ID)
	}
	for _, x := range unrecorded {
		j.instances = append(j.instances, plan.Instance{Instance: x, Busy: true})
	}
	byID := func(a, b plan.Instance) int { return strings.Compare(string(a.ID), string(b.ID)) }
	if !slices.IsSortedFunc(j.instances, byID) {
		slices.SortFunc(j.instances, byID)
	}
	return j
}

// add adds one record with what is known beyond it.
func (j *joined) add(b *observation, r fleet.Instance, at moment) {
	if b.knownSince.IsZero() {
		b.knownSince = at.now
	}
	if at.isThrottled && r.Phase == fleet.Pending && r.Provider.ID == "" && b.vm != plan.VMAlive {
		b.askedAt = at.now // it is not late to register
	}
	i := b.join(r, at.now)
	i.Owed = b.owed(&i, at) || b.standsIn && r.Phase == fleet.Pending && r.Provider.ID == ""
	if i.Busy && !b.busy {
		j.again = sooner(j.again, b.quietUntil)
	}
	if at.isAwaited && b.absent() {
		i.VM, i.Busy = plan.VMAlive, true
	}
	if settles := plan.SettlesAt(&r, at.settings); r.Phase == fleet.Running && settles.After(at.now) {
		j.settles = sooner(j.settles, settles)
	}
	j.instances = append(j.instances, i)
}

// join is the record with what is known beyond it.
func (b *observation) join(r fleet.Instance, now time.Time) plan.Instance {
	return plan.Instance{
		Instance: r, KnownSince: b.knownSince, VM: b.vm, Health: b.health,
		AskedAt: b.askedAt, RetryAt: b.retryAt, Busy: b.isBusy(now),
	}
}
