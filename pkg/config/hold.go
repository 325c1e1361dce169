package config

import (
	"github.com/nstance/nstance/pkg/fleet"
)

// History is what a group's record is judged by when it is read.
type History struct {
	// Known is the last known version; zero if there is none.
	Known GroupRecord
	// Certain: Known is this leader's latest version, so only an external change can have
	// removed it. Otherwise an earlier leader may have.
	Certain bool
	// Living is the number of live managed instances. Lives reports whether there are any live
	// instances, including on-demand ones.
	Living int
	Lives  bool
	// Acting: the leader acts already, so a group may have surplus instances for a while.
	Acting bool
	// Late: an instance was found after the takeover, so that a size at which the group is held may
	// have been counted without it.
	Late bool
	// Accepted is the last accepted config; nil if it is the one that judges, or if none can be read.
	Accepted *Shard
	// Beyond is how many of them may exceed the size: they replace others, or will, or an accepted
	// config had a larger size.
	Beyond int
	// Revision is the highest revision of the group that created a live instance; 0: none.
	Revision uint64
	// Since is a lower bound of the revision of a record that is made here.
	Since uint64
}

// HoldGroup judges a stored record, or its absence, by the known version and the live
// instances. It returns the record that takes effect: one that disappeared without a deletion
// is kept and marked as missing. A record that is removed or has a smaller size, and a
// tombstone, are taken as a deletion if they are not older than the known version. The
// returned revision is at least that of any known version. differs reports whether the store
// lacks the returned record.
func (s *Shard) HoldGroup(key fleet.GroupKey, is GroupRecord, h History) (goesOn GroupRecord, differs bool) {
	j := judgement{Shard: s, History: h, key: key, is: is}
	_, j.isStatic = s.Static(key)
	goesOn, differs = j.judgeKnown()
	last := is
	if !is.Stored() {
		last = h.Known
	}
	overridden := (!is.Stored() || j.older()) && h.Revision > max(is.Revision, h.Known.Revision) || j.tooMany(last)
	if !differs && !goesOn.exists && h.Lives && (!j.isStatic || overridden) {
		return j.undefined(), true
	}
	if j.tooSmall(goesOn) {
		return j.mark(goesOn), true
	}
	if lowest := max(h.Known.Revision, h.Revision); goesOn.Revision < lowest { // one that was written externally may have none
		goesOn.Revision = lowest
		if goesOn.Stored() && !goesOn.Unreadable() {
			goesOn.Revision, differs = lowest+1, true
		}
	}
	return goesOn, differs
}

// judgement is the state of one HoldGroup call.
type judgement struct {
	*Shard
	History
	key      fleet.GroupKey
	isStatic bool
	is       GroupRecord
}

// older reports whether the object was written before the known version, or before the one that
// created a live instance. An object without a header was written externally.
func (j judgement) older() bool {
	return j.is.Stored() && j.is.Header != (Header{}) && (j.is.Rev < j.Known.Rev || j.behind(j.is))
}

// tooMany reports whether a group has more live instances than the config allows, though no accepted
// config took them away: its record names a larger size than the last accepted config that can be
// read gives it, if any, so that one is outdated. If there is no record, all accepted configs set one
// size, so there was an override.
func (j judgement) tooMany(r GroupRecord) bool {
	if j.Acting || r.Removed || r.Unreadable() || r.Size != nil || j.Living-j.Usage(j.key, r).Instances <= j.Beyond {
		return false
	}
	if r.ConfigSize == nil {
		return true
	}
	_, known := r.sizeBy(j.Shard, j.key)
	return known && r.HasLessBy(j.Shard, j.key) && (j.Accepted == nil || r.HasLessBy(j.Accepted, j.key))
}

// HasLessBy reports whether a config gives a group less than its record says that the last accepted
// one gave it.
func (r GroupRecord) HasLessBy(s *Shard, key fleet.GroupKey) bool {
	size, _ := r.sizeBy(s, key)
	return r.ConfigSize != nil && size < *r.ConfigSize
}

// tooSmall reports whether a group with a record is to be held at a larger size.
func (j judgement) tooSmall(r GroupRecord) bool {
	return r.exists && (j.tooMany(r) || j.miscounted(r))
}

// miscounted reports whether a group is held at a size below the number of its live instances,
// some of which were not known when it was counted.
func (j judgement) miscounted(r GroupRecord) bool {
	return j.Late && r.Missing && r.Size != nil && *r.Size < j.Living
}

// behind reports whether a live instance was created by a later version of the record.
func (j judgement) behind(r GroupRecord) bool {
	return j.Lives && !r.Unreadable() && r.Revision < j.Revision
}

// judgeKnown compares the record with the known version.
func (j judgement) judgeKnown() (goesOn GroupRecord, differs bool) {
	is, was := j.is, j.Known
	if is.Stored() && !j.older() {
		return is, false
	}
	switch {
	case is.exists && is.Same(was) && !j.behind(is):
		return is, false
	case is.exists && is.sameWish(was) && !j.behind(was):
		return j.found(was), true
	case !j.counts(was):
		return j.judgeAlone()
	case was.Removed && j.behind(was): // recreated since
		return j.undefined(), true
	case was.Removed: // the deletion was accepted
		return was, true
	default:
		return j.mark(was), true
	}
}

// counts reports whether the known version affects the result. It does not if it is a finished
// removal, or equals static config, or if nothing lives and an earlier leader may have removed
// it.
func (j judgement) counts(was GroupRecord) bool {
	return was.exists && (j.Lives || j.Certain && !was.Removed) && (!j.isStatic || !was.Removed && was.overrides())
}

// judgeAlone judges a record by the live instances alone: if a later version created
// instances, it keeps neither a size below the number of live instances nor a removal.
func (j judgement) judgeAlone() (goesOn GroupRecord, differs bool) {
	switch {
	case !j.is.exists, !j.behind(j.is):
		return j.is, false
	case j.is.Removed:
		return j.undefined(), true
	default:
		return j.mark(j.is), true
	}
}

// undefined returns a record for a group of which only its instances are known.
func (j judgement) undefined() GroupRecord {
	n := j.Living
	return j.is.with(Entry{Size: &n, Missing: true, Undefined: true, Revision: j.nextRevision(0)})
}

// mark marks a known record as missing. A version from the cache, or older than one that created
// instances, may be outdated, so its size is raised to the number of live instances.
func (j judgement) mark(was GroupRecord) GroupRecord {
	behind := j.behind(was)
	if was.Missing && !behind && !j.miscounted(was) && (j.Certain || was.Size != nil) {
		return was
	}
	was.Missing, was.Revision = true, j.nextRevision(was.Revision)
	if j.Certain && !behind && !j.Late {
		return was
	}
	static, _ := j.Static(j.key)
	size := max(j.Living, j.sizeWith(static, was.Entry))
	was.Size, was.ConfigSize = &size, nil
	return was
}

// found clears the missing mark.
func (j judgement) found(was GroupRecord) GroupRecord {
	if was.Missing {
		was.Missing, was.Revision = false, j.nextRevision(was.Revision)
	}
	return was
}

func (j judgement) nextRevision(before uint64) uint64 {
	return max(before, j.Known.Revision, j.is.Revision, j.Revision, j.Since) + 1
}

// sameWish reports whether a record equals the known one apart from the revision, the missing mark,
// whether the rollout is paused or aborted, and what manages the group.
func (r GroupRecord) sameWish(was GroupRecord) bool {
	if r.unreadable != nil || r.Missing {
		return false
	}
	r.Revision, r.Missing, r.SizeKept, r.Kept, r.ConfigSize = was.Revision, was.Missing, was.SizeKept, was.Kept, was.ConfigSize
	r.RolloutPaused, r.Manager, r.Replaced, r.Aborted = was.RolloutPaused, was.Manager, was.Replaced, was.Aborted
	return r.Same(was)
}

// overrides reports whether an entry overrides anything of a static group.
func (e Entry) overrides() bool {
	return e.Size != nil || e.InstanceType != nil || e.Vars != nil || e.Rotation != nil || e.RolloutPaused || e.Manager != "" ||
		e.Aborted != nil || len(e.Leaving) > 0
}
