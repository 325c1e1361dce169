package reconcile

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/census"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/plan"
)

// view gathers everything that a decision about one group depends on, and reports whether the
// group is defined. The view is valid until the next call.
//
// The order matters: a worker removes its instance from the creates, or clears its busy flag,
// only after the ledger shows the result. So the creates are read before the ledger, and the
// ledger under the lock that guards the busy flags: an instance can be seen twice here but
// never missed. The group is read last: an instance that was found late may show that more is to be
// known of it first.
func (l *Loop) view(key fleet.GroupKey, now time.Time) (plan.View, bool) {
	settings := l.cfg.Groups.Settings()
	begun := l.launcher.of(key)
	at := observe.Moment{
		Now: now, Settings: settings, Awaited: l.absence.last == census.Awaited, Throttled: l.cloud.Changes() > 0,
	}
	last := l.joined.Instances
	all := l.observed.Join(key, begun, at, last[:0])
	if len(all.Instances) < len(last) {
		clear(last[len(all.Instances):]) // the buffer keeps no other record
	}
	l.joined = all
	g, defined := l.cfg.Groups.Group(key)
	g.Key = key
	pace, again := l.pacer.At(g, func() []plan.Life { return l.observed.Living(all.Instances, g, now, nil) }, settings, now)
	l.schedule.MarkAt(key, again)
	if pace.Probation > 0 {
		l.schedule.MarkAt(key, all.Settles) // may end a probation or converge the group
	}
	v := plan.View{Now: now, Group: g, Settings: settings, Instances: all.Instances, Pace: pace}
	l.resumable.retain(key, v.Instances)
	for n := range v.Instances {
		i := &v.Instances[n]
		// A record with an idempotency key is never stray, even if it appears late: a
		// tombstone would make the key name a dead instance before the caller got an
		// answer. Its create was never called, so resuming it makes no second VM.
		i.Stray = !i.Busy && i.Phase == fleet.Pending && i.RequestKey == "" && i.Epoch < l.cfg.Fence.Epoch() &&
			!l.resumable[key][i.ID]
	}
	// After the records, so that a record that becomes readable meanwhile is not counted
	// twice, as an instance and as a claimed VM.
	v.Group.Size = max(0, g.Size-l.sweeper.filled(key, func(id fleet.InstanceID) bool { return v.Find(id) != nil }))
	v.Filled = g.Size - v.Group.Size
	l.schedule.MarkAt(key, all.Again)
	v.Takeover, v.Surge = *l.takeover.Load(), l.surges.Granted(key, l.tuning.Load().MaxSurge)
	return v, defined
}
