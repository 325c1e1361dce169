// Package preview tells what a switch from one static config to another does to a shard, before
// it happens. It is a pure function: no I/O, no clock, and no dependence on map order.
//
// Both configs are resolved with the records of the groups, as the leader resolves them: the
// next one with the records as they are after the succession. A group whose result is the same
// is not part of the preview. A machine is replaced by the rule of package plan: its hashes are
// those of another definition.
package preview

import (
	"slices"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// Change is what happens to a group.
type Change int

// The changes of a group.
const (
	Added    Change = iota + 1 // it did not exist
	Removed                    // it ends
	Outlives                   // its static definition ends, and its record defines it
	Adopted                    // it was dynamic, and gets a static definition
	Changed                    // anything else
)

// Group is what happens to one group.
type Group struct {
	Key        fleet.GroupKey
	Change     Change
	SizeBefore int // 0 without a group
	Size       int
	Instances  int // managed, and neither draining nor being deleted
	// Replaced is how many of Instances are replaced, AtATime how many of these at the most at
	// the same time by the surges of group and shard; 0 while the group's rollout is paused.
	Replaced, AtATime int
	// Pushed are the files whose content may change on running instances, and Dropped those that
	// the group no longer has. Sorted.
	Pushed, Dropped []string
	Fields          []string // that change, sorted
	Disabled        string   // why the group would be disabled
}

// Override is a static group whose size is overridden.
type Override struct {
	Key              fleet.GroupKey
	StaticSize, Size int
	Manager          string // of the group; empty: none
}

// Preview is what a switch of the static config does. Both lists are sorted by key.
type Preview struct {
	Groups    []Group
	Overrides []Override // under the next config
	// ShardSurge is how many instances beyond its size the shard may have while groups rotate.
	ShardSurge int
}

// Input is what a preview depends on. It is not changed.
type Input struct {
	From, To  *config.Shard
	Records   config.GroupRecords
	Instances []fleet.Instance
}

// Of returns the preview of a switch.
func Of(in Input) Preview {
	keys, size := keysOf(in), 0
	all := make(map[fleet.GroupKey]pair, len(keys))
	for _, key := range keys {
		p := in.resolve(key)
		all[key] = p
		if p.is.there() {
			size += p.is.Size
		}
	}
	out := Preview{ShardSurge: in.To.Server.Rotation.MaxSurge.Of(size)}
	there := byGroup(in.Instances)
	for _, key := range keys {
		p := all[key]
		if g := p.is; g.there() && g.Static && g.Size != g.StaticSize {
			out.Overrides = append(out.Overrides, Override{Key: key, StaticSize: g.StaticSize, Size: g.Size, Manager: g.Manager})
		}
		if g, changes := in.group(p, there[key], out.ShardSurge); changes {
			out.Groups = append(out.Groups, g)
		}
	}
	return out
}

// keysOf returns the groups that either config defines or that have a record, sorted.
func keysOf(in Input) []fleet.GroupKey {
	keys := slices.Concat(in.From.StaticGroups(), in.To.StaticGroups())
	for key := range in.Records {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, fleet.GroupKey.Compare)
	return slices.Compact(keys)
}

// resolved is a group under one of the configs.
type resolved struct {
	fleet.Group
	defined bool
}

// there reports whether the group exists and is not being removed.
func (r resolved) there() bool { return r.defined && !r.Removed }

// pair is a group before and after the switch.
type pair struct{ was, is resolved }

func (in Input) resolve(key fleet.GroupKey) (p pair) {
	record := in.Records[key]
	to := config.Succession{Next: in.To, Before: []*config.Shard{in.From}}
	p.was.Group, p.was.defined, _ = in.From.ResolveGroup(key, record)
	p.is.Group, p.is.defined, _ = in.To.ResolveGroup(key, to.KeepTemplate(key, to.Record(key, record)))
	p.was.Key, p.is.Key = key, key
	return p
}

// members are a group's instances that neither drain nor are being deleted.
type members struct {
	managed []fleet.Instance
	all     int // with the on-demand ones
}

func byGroup(all []fleet.Instance) map[fleet.GroupKey]members {
	groups := map[fleet.GroupKey]members{}
	for _, i := range all {
		if !i.Phase.Active() {
			continue
		}
		m := groups[i.GroupKey()]
		if m.all++; !i.OnDemand {
			m.managed = append(m.managed, i)
		}
		groups[i.GroupKey()] = m
	}
	return groups
}

// group returns what happens to a group, and whether anything does.
func (in Input) group(p pair, m members, shardSurge int) (Group, bool) {
	g := Group{Key: p.is.Key, Instances: len(m.managed)}
	if p.was.there() {
		g.SizeBefore = p.was.Size
	}
	if !p.is.there() {
		g.Change = Removed
		return g, p.was.there()
	}
	g.Size, g.Disabled = p.is.Size, p.is.Disabled
	if !p.was.there() {
		g.Change = Added
		return g, true
	}
	g.Change = p.change()
	g.Fields = p.fields()
	if g.Replaced = replaced(p.is.Group, m.managed); g.Replaced > 0 && !p.is.RolloutPaused {
		g.AtATime = min(g.Replaced, p.is.MaxSurge.Of(p.is.Size), shardSurge)
	}
	if m.all > 0 && !p.is.FilesHeld {
		g.Pushed, g.Dropped = in.files(p)
	}
	return g, g.Change != Changed || len(g.Fields) > 0 || len(g.Pushed) > 0 || len(g.Dropped) > 0 || p.was.Disabled != p.is.Disabled
}

func (p pair) change() Change {
	switch {
	case p.was.Static && !p.is.Static:
		return Outlives
	case !p.was.Static && p.is.Static:
		return Adopted
	default:
		return Changed
	}
}

// replaced returns how many instances are replaced: those of another definition that are not
// removed anyway because the group is too large. A group that is disabled, or whose record is
// missing, replaces none.
func replaced(g fleet.Group, managed []fleet.Instance) int {
	if g.Disabled != "" || g.RecordMissing != "" {
		return 0
	}
	outdated := 0
	for _, i := range managed {
		if i.Hashes.Outdated(g.Hashes) {
			outdated++
		}
	}
	return min(outdated, max(0, g.Size-(len(managed)-outdated)))
}
