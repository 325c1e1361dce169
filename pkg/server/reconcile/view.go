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
	begun, notBefore := l.launcher.of(g)
	instances, again := l.observed.join(l.cfg.Ledger, key, begun, moment{
		now: now, isAwaited: l.witness.last == awaited, isThrottled: l.cloud.mutations.rate() > 0,
	}, l.viewed[:0])
	l.viewed = instances
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
		_, shown := slices.BinarySearchFunc(instances, id, func(i plan.Instance, id fleet.InstanceID) int { return cmp.Compare(i.ID, id) })
		return shown
	}))
	l.schedule.markAt(key, again)
	return plan.View{
		Now: now, Group: g, Settings: l.cfg.Groups.Settings(), Instances: instances,
		Takeover: *l.takeover.Load(), Pace: plan.Pace{NotBefore: notBefore},
		Surge: g.MaxSurge.Of(g.Size),
	}, defined
}

// moment is when instances are looked at, and by what.
type moment struct {
	now       time.Time
	isAwaited bool // whether the absence of VMs is real

	isThrottled bool // creates wait for their turn
}

// join returns a group's records, and the creates that have begun and are not
// recorded yet, with what is known beyond them, in the order of their ids; and
// when a step is due again that failed. While it is awaited whether the absence of
// VMs is real, they are shown as alive and busy, so that it decides nothing.
//
// The instances are put into the room that is given.
func (o *observations) join(
	l Ledger, key fleet.GroupKey, begun []fleet.Instance, at moment, room []plan.Instance,
) (all []plan.Instance, again time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	records := l.Group(key)
	all = slices.Grow(room, len(records)+len(begun))
	unrecorded := make(map[fleet.InstanceID]fleet.Instance, len(begun))
	for _, x := range begun {
		unrecorded[x.ID] = x
	}
	for _, r := range records {
		b := o.observation(r.ID)
		if b.knownSince.IsZero() {
			b.knownSince = at.now
		}
		if at.isThrottled && r.Phase == fleet.Pending && r.Provider.ID == "" && b.vm != plan.VMAlive {
			b.askedAt = at.now // it is not late to register
		}
		i := b.join(r, at.now)
		if i.Busy && !b.busy {
			again = sooner(again, b.quietUntil)
		}
		if at.isAwaited && b.absent() {
			i.VM, i.Busy = plan.VMAlive, true
		}
		delete(unrecorded, r.ID)
		all = append(all, i)
	}
	for _, x := range unrecorded {
		all = append(all, plan.Instance{Instance: x, Busy: true})
	}
	byID := func(a, b plan.Instance) int { return strings.Compare(string(a.ID), string(b.ID)) }
	if !slices.IsSortedFunc(all, byID) {
		slices.SortFunc(all, byID)
	}
	return all, again
}

// join is the record with what is known beyond it.
func (b *observation) join(r fleet.Instance, now time.Time) plan.Instance {
	return plan.Instance{
		Instance: r, KnownSince: b.knownSince, VM: b.vm, Health: b.health,
		AskedAt: b.askedAt, RetryAt: b.retryAt, Busy: b.isBusy(now),
	}
}
