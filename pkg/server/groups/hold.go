package groups

import (
	"cmp"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/writes"
)

// This file handles groups whose record or override disappeared without a deletion: the object
// was removed or edited externally, or an older version was restored. Such a group is held in
// its last known state, which the next write of its record makes durable.

// ReasonRecordMissing is the reason of the problem of such a group.
const ReasonRecordMissing = "GroupRecordMissing"

// living summarizes the live instances of a group.
type living struct {
	any      bool
	managed  int    // without those being replaced
	made     int    // those of managed that were created in this term
	asked    int    // those being replaced, whose removal was requested
	revision uint64 // the highest revision of the group that created one of them
	found    uint64 // how often one of an earlier leader had been found before these were counted
}

// add counts an instance. A pending instance for which no create was attempted is no evidence
// that its group existed.
func (l *living) add(i fleet.Instance) {
	if !i.Phase.Active() || i.Phase == fleet.Pending && i.Provider.ID == "" && i.Provider.CreateAttemptedAt == nil {
		return
	}
	l.any, l.revision = true, max(l.revision, i.GroupRevision)
	switch {
	case i.OnDemand:
	case i.RemovalAskedAt != nil:
		l.asked++
	default:
		l.managed++
	}
}

// livingOf returns the live instances of one group. One that is found meanwhile counts again.
func livingOf(r writes.Records, key fleet.GroupKey) (l living) {
	l.found = r.Traces(key).Found
	for _, i := range r.Group(key) {
		before := l.managed
		if l.add(i); l.managed > before && r.Made(i.ID) {
			l.made++
		}
	}
	return l
}

// beyond returns how many instances of a group may exceed the size of the config, unless its record
// names one: surge replacements, or a larger size in the last accepted config. Records need not say
// which instances are being replaced, so new instances count, too. A record without a size that was
// written by hand is accepted as it is. The caller holds mu.
func (l living) beyond(g *Groups, key fleet.GroupKey, r config.GroupRecord) (beyond int) {
	switch {
	case r.ConfigSize != nil || r.Unreadable():
		return 0
	case r.Stored() && !g.cfg.First:
		return config.MaxGroupSize
	}
	accepted := cmp.Or(g.cfg.Past, g.static)
	if _, defined, _ := accepted.ResolveGroup(key, r); !defined {
		return 0 // no leader replaced any by a config that lacks the group, so that one is outdated
	}
	size := g.static.Usage(key, r).Instances
	for _, static := range []*config.Shard{g.static, g.cfg.Past} {
		if static == nil {
			continue
		}
		if group, defined, _ := static.ResolveGroup(key, r); defined {
			replaced := max(0, plan.Beyond(g.records.Group(key), group, settings(static), g.cfg.Now())-l.asked)
			beyond = max(beyond, group.Size-size+replaced)
		}
	}
	if g.cfg.First {
		return beyond // there may have been a larger size: those beyond need not be replacements
	}
	return beyond + newOf(g, key)
}

// newOf counts the managed instances that the previous leader may have created as replacements
// without having drained the old ones yet.
func newOf(g *Groups, key fleet.GroupKey) (n int) {
	since := g.cfg.Now().Add(-time.Duration(g.static.Server.LeaderElection.LeaseDuration) - time.Minute)
	for _, i := range g.records.Group(key) {
		if !i.OnDemand && i.Phase.Active() && i.RemovalAskedAt == nil && (i.RegisteredAt == nil || i.RegisteredAt.After(since)) {
			n++
		}
	}
	return n
}

// missing reports whether a group is held because its record is missing.
func (g *Groups) missing(key fleet.GroupKey) bool {
	group, desired := g.Group(key)
	return group.RecordMissing != "" && (desired || g.records.Lives(key))
}
