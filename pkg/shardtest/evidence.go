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

// evidence is the state of a group in the store that justifies removing its instances: the
// accepted config and the group objects.
type evidence struct {
	least   int                       // the smallest size
	removed bool                      // by its entry, or because there is none
	leaving map[fleet.InstanceID]bool // the leaving list
	until   time.Time                 // zero: still valid
}

// evidenceLasts is how long evidence counts after it changed: writes that were decided by it
// may be slow, or their outcome unknown for some time.
const evidenceLasts = 2 * time.Minute

// evidences holds the evidence of each group, the latest last. Guarded by book.mu.
type evidences map[fleet.GroupKey][]evidence

// testify records the current evidence of all groups. Those of changed may be as small as these
// manually changed records say. Those of kept are at least that large,
// whatever the config says.
func (all evidences) testify(applied *config.Shard, records, changed config.GroupRecords, kept map[fleet.GroupKey]int) {
	if applied == nil {
		return
	}
	groups, _ := applied.Resolve(records)
	for key := range all {
		if _, there := groups[key]; !there {
			groups[key] = fleet.Group{Key: key, Removed: true}
		}
	}
	now := time.Now()
	for key, g := range groups {
		is := evidence{least: g.Size, removed: g.Removed, leaving: map[fleet.InstanceID]bool{}}
		for _, id := range records[key].Leaving {
			is.leaving[id] = true
		}
		if g.Removed {
			is.least = 0
		}
		if r, was := changed[key]; was {
			other, _, _ := applied.ResolveGroup(key, r)
			is.least = min(is.least, other.Size)
		}
		if size := kept[key]; size > 0 {
			is.least, is.removed = max(is.least, size), false
		}
		all[key] = succeed(all[key], is, now)
	}
}

// succeed appends the current evidence, and drops what no longer counts.
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

// counts reports whether the evidence is valid, or was within evidenceLasts.
func (e evidence) counts(now time.Time) bool {
	return e.until.IsZero() || now.Sub(e.until) <= evidenceLasts
}

// say reports whether any evidence of a group that counts satisfies a condition.
func (all evidences) say(key fleet.GroupKey, what func(evidence) bool) bool {
	now := time.Now()
	return slices.ContainsFunc(all[key], func(e evidence) bool { return e.counts(now) && what(e) })
}

// ends records when instances began to leave, and the evidence of their groups. Guarded by
// book.mu.
type ends struct {
	evidence evidences
	at       map[fleet.InstanceID]time.Time
}

// judge records that an instance leaves, and returns a violation if the store does not justify
// the reason; a missing or late listing does not. Reasons that come from machines, agents or
// the provider are checked elsewhere.
func (e ends) judge(old, i fleet.Instance, records map[fleet.InstanceID]fleet.Instance) (wrong string) {
	if !old.Phase.Active() || i.Phase.Active() {
		return ""
	}
	e.at[i.ID] = time.Now()
	reason := i.Reason
	if i.Drain != nil {
		reason = i.Drain.Reason
	}
	reason, _, _ = strings.Cut(reason, ": ") // details of the provider follow
	key := i.GroupKey()
	removed := func(v evidence) bool { return v.removed }
	named := func(v evidence) bool { return v.leaving[i.ID] }
	stay := e.staying(i, records)
	fits := func(v evidence) bool { return stay >= v.least }
	switch {
	case i.OnDemand:
		return ""
	case reason == plan.ReasonGroupRemoved && !e.evidence.say(key, removed):
		return fmt.Sprintf("%s leaves because group %s was removed, but it was not", i.ID, key)
	case reason == plan.ReasonLeaving && !e.evidence.say(key, named):
		return fmt.Sprintf("%s leaves because of the leaving list, but is not in it", i.ID)
	case reason == plan.ReasonScaleDown && !e.evidence.say(key, fits):
		return fmt.Sprintf("%s leaves because group %s is too large, but the %d others are fewer than its size", i.ID, key, stay)
	case reason == plan.ReasonReplaceAsked && old.RemovalAskedAt == nil && i.RemovalAskedAt == nil:
		return fmt.Sprintf("%s leaves because its removal was requested, but its record does not say so", i.ID)
	}
	return ""
}

// staying counts the other members of an instance's group, including those that left within
// evidenceLasts, since the decision about the instance may be older.
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
