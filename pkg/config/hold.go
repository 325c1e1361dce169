package config

import (
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
)

// Held is what a tenant's object is judged by when it was read.
type Held struct {
	Tenant string
	Absent bool // there is no object
	// Known is the last version that was known before; nil: none.
	Known *Entries
	// Certain: Known is what this leader had last, so nothing but another hand can have
	// taken anything out of it. Otherwise a leader in between may have.
	Certain bool
	// Living is how many managed instances of each group live; a group with none but
	// on-demand ones has 0.
	Living map[string]int
	// Beyond is how many of those may be beyond the size that the static config gives a
	// group, because it replaces others.
	Beyond map[string]int
}

// Hold judges an object, as it was read, by what was known before and by what lives. It
// returns the entries with which the leader goes on: what went without a sign that it was
// to go is there, marked as missing. A sign is an entry that says so, or says a smaller
// size, in a version that is not older than the known one. t is not modified.
func (s *Shard) Hold(t *Entries, h Held) (held *Entries, err error) {
	j := judgement{Shard: s, Held: h, stored: t, changed: map[string]Entry{}}
	if h.Known != nil {
		j.known, j.rev = h.Known.entries, h.Known.header.Rev
	}
	by := t.header
	j.older = by != (Header{}) && by.Rev < j.rev
	j.doubtful = h.Absent || by.Rev <= j.rev
	j.judgeKnown()
	j.judgeLiving()
	if len(j.changed) == 0 {
		return t, nil
	}
	entries := maps.Clone(t.entries)
	maps.Copy(entries, j.changed)
	return newTenant(by, entries, t.unknown)
}

// judgement is one Hold in the making.
type judgement struct {
	*Shard
	Held
	stored   *Entries
	known    map[string]Entry
	rev      uint64 // of the known version
	older    bool   // the object was written before the known one
	doubtful bool   // no leader that knew the known version wrote what there is
	changed  map[string]Entry
}

// judgeKnown looks at each entry that was known.
func (j *judgement) judgeKnown() {
	for name, was := range j.known {
		if goesOn, differs := j.judgeEntry(name, was); differs {
			j.changed[name] = goesOn
		}
	}
}

// judgeEntry returns the entry with which the leader goes on where one was known, and
// whether that is another than was found.
func (j *judgement) judgeEntry(name string, was Entry) (goesOn Entry, differs bool) {
	is, there := j.stored.entries[name]
	_, isStatic := j.Static(fleet.GroupKey{Tenant: j.Tenant, Name: name})
	_, lives := j.Living[name]
	switch {
	case there && (!j.older || sameEntry(is, was)):
		return is, false
	case was.Removed:
		return was, !isStatic && lives && (j.Certain || j.doubtful) // the deletion was accepted
	case there && sameWish(is, was):
		return j.found(was), true
	case was.unread != nil, isStatic && !was.overrides(), !j.isLost(isStatic, lives):
		return is, false
	default:
		return j.mark(name, was), true
	}
}

// isLost reports whether an entry that was known, and is not there as it was, went without
// a sign that it was to go.
func (j *judgement) isLost(isStatic, lives bool) bool {
	return j.Certain || lives && (j.doubtful || !isStatic)
}

// judgeLiving looks at the groups that have instances.
func (j *judgement) judgeLiving() {
	for name, n := range j.Living {
		if _, there := j.stored.entries[name]; there {
			continue
		}
		if _, changed := j.changed[name]; changed {
			continue
		}
		static, isStatic := j.Static(fleet.GroupKey{Tenant: j.Tenant, Name: name})
		size := sizeOf(static.Size, j.Templates[static.Template].Size)
		switch {
		case !isStatic, j.Absent && j.Known == nil && n > size+j.Beyond[name]: // there may have been an override
			j.changed[name] = Entry{Size: &n, Missing: true, Undefined: true, Revision: j.nextRevision(0)}
		}
	}
}

// mark marks an entry that was known as missing. What was known by a cache may be less
// than what was wanted last, so no size below what lives is taken from there.
func (j *judgement) mark(name string, was Entry) Entry {
	if was.Missing {
		return was
	}
	was.Missing, was.Revision = true, j.nextRevision(was.Revision)
	if j.Certain {
		return was
	}
	key := fleet.GroupKey{Tenant: j.Tenant, Name: name}
	template := value(was.Template)
	static, isStatic := j.Static(key)
	if isStatic {
		template = static.Template
	}
	size := max(j.Living[name], sizeOf(was.Size, static.Size, j.Templates[template].Size))
	was.Size = &size
	return was
}

// found ends that an entry counts as missing.
func (j *judgement) found(was Entry) Entry {
	if was.Missing {
		was.Missing, was.Revision = false, j.nextRevision(was.Revision)
	}
	return was
}

func (j *judgement) nextRevision(before uint64) uint64 {
	return max(before, j.rev, j.stored.header.Rev) + 1
}

// overrides reports whether an entry has a say in a group that static config names.
func (e Entry) overrides() bool {
	return e.Size != nil || e.InstanceType != nil || e.Vars != nil || e.Rotation != nil || len(e.Leaving) > 0
}

// sameWish reports whether an entry says all that was known, and that it is there: it may
// be of another revision.
func sameWish(is, was Entry) bool {
	if is.unread != nil || is.Missing {
		return false
	}
	is.Revision, is.Missing, is.SizeKept = was.Revision, was.Missing, was.SizeKept
	return sameEntry(is, was)
}

// sameEntry reports whether two entries have the same text.
func sameEntry(a, b Entry) bool {
	x, errX := a.MarshalJSON()
	y, errY := b.MarshalJSON()
	return errX == nil && errY == nil && slices.Equal(x, y)
}
