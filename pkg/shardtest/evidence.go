package shardtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// evidence is what the store said of a group: what may end machines of it. Only the
// config that was accepted counts, and the objects with groups.
type evidence struct {
	least   int                       // the smallest size
	removed bool                      // by its entry, or by the lack of any
	leaving map[fleet.InstanceID]bool // named to go
	until   time.Time                 // zero: it still says so
}

// evidenceLasts is how long a record may be written after what it was decided by is no
// longer so: the write may be slow, or its outcome unknown for some time.
const evidenceLasts = 2 * time.Minute

// evidences are what the store said of each group, the latest last. The lock of the book
// guards it.
type evidences map[fleet.GroupKey][]evidence

// testify notes what the store says of the groups from now on.
func (all evidences) testify(applied *config.Shard, dynamic config.Dynamic) {
	if applied == nil {
		return
	}
	groups, _ := applied.Resolve(dynamic)
	for key := range all {
		if _, there := groups[key]; !there {
			groups[key] = fleet.Group{Key: key, Removed: true}
		}
	}
	now := time.Now()
	for key, g := range groups {
		is := evidence{least: g.Size, removed: g.Removed, leaving: map[fleet.InstanceID]bool{}}
		if e, ok := dynamic.Entry(key); ok {
			for _, id := range e.Leaving {
				is.leaving[id] = true
			}
		}
		if g.Removed {
			is.least = 0
		}
		all[key] = succeed(all[key], is, now)
	}
}

// succeed has what is said now follow what was said before, of which it drops what no
// longer counts.
func succeed(said []evidence, is evidence, now time.Time) []evidence {
	said = slices.DeleteFunc(said, func(e evidence) bool { return !e.counts(now) })
	if n := len(said); n > 0 && said[n-1].until.IsZero() {
		if last := said[n-1]; last.least == is.least && last.removed == is.removed && maps.Equal(last.leaving, is.leaving) {
			return said
		}
		said[n-1].until = now
	}
	return append(said, is)
}

// counts reports whether it is still said, or was shortly before.
func (e evidence) counts(now time.Time) bool {
	return e.until.IsZero() || now.Sub(e.until) <= evidenceLasts
}

// say reports whether the store says something of a group, or did shortly before.
func (all evidences) say(key fleet.GroupKey, what func(evidence) bool) bool {
	now := time.Now()
	return slices.ContainsFunc(all[key], func(e evidence) bool { return e.counts(now) && what(e) })
}

// ends are when instances began to go, and what the store said of their groups. The lock
// of the book guards them.
type ends struct {
	evidence evidences
	at       map[fleet.InstanceID]time.Time
}

// judge notes the end of an instance and returns what is wrong with it: that the store
// gives no reason for it. That something was not listed, or listed late, is none. Reasons
// that machines, their agents and the provider give are judged elsewhere.
func (e ends) judge(old, i fleet.Instance, records map[fleet.InstanceID]fleet.Instance) (wrong string) {
	if !old.Phase.Active() || i.Phase.Active() {
		return ""
	}
	e.at[i.ID] = time.Now()
	reason := i.Reason
	if i.Drain != nil {
		reason = i.Drain.Reason
	}
	reason, _, _ = strings.Cut(reason, ": ") // the provider's words follow
	key := i.GroupKey()
	removed := func(v evidence) bool { return v.removed }
	named := func(v evidence) bool { return v.leaving[i.ID] }
	stay := e.staying(i, records)
	fits := func(v evidence) bool { return stay >= v.least }
	switch {
	case i.OnDemand:
		return ""
	case reason == plan.ReasonGroupRemoved && !e.evidence.say(key, removed):
		return fmt.Sprintf("%s goes because group %s was removed, and the store does not say so", i.ID, key)
	case reason == plan.ReasonLeaving && !e.evidence.say(key, named):
		return fmt.Sprintf("%s goes because it was named to, and the store does not say so", i.ID)
	case reason == plan.ReasonScaleDown && !e.evidence.say(key, fits):
		return fmt.Sprintf("%s goes because group %s is too large, and the %d others do not make its size", i.ID, key, stay)
	case reason == plan.ReasonReplaceAsked && old.RemovalAskedAt == nil && i.RemovalAskedAt == nil:
		return fmt.Sprintf("%s goes because that was asked for, and its record does not say so", i.ID)
	}
	return ""
}

// staying counts the other members of an instance's group. One that has left since counts
// for as long as the write may take by which the instance goes.
func (e ends) staying(i fleet.Instance, records map[fleet.InstanceID]fleet.Instance) (n int) {
	for _, r := range records {
		at, left := e.at[r.ID]
		if r.ID == i.ID || r.OnDemand || r.GroupKey() != i.GroupKey() {
			continue
		}
		if r.Phase.Active() || left && time.Since(at) <= evidenceLasts {
			n++
		}
	}
	return n
}
