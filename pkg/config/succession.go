package config

import (
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Succession is a static config that replaces others.
type Succession struct {
	Next   *Shard
	Before []*Shard // the most recent first
	Now    time.Time
	// Counted: all machines are known. Until then no record names a smaller size than it did: those that are
	// found later may show that Next, or the config that was found as accepted, is outdated.
	Counted bool
}

// Record returns a group's record after the succession. A group that an earlier config
// defined, and the next one does not, is kept if it has a record; otherwise it gets a record
// that empties it, so that every later leader knows. The groups of a removed tenant are
// deleted, because no caller could do that later. A static group without a record whose size changes
// gets a tombstone. A record without a size names the one that the next config gives, if the machines
// are known or it is not smaller.
func (c Succession) Record(key fleet.GroupKey, was GroupRecord) GroupRecord {
	r := was
	_, isStatic := c.Next.Static(key)
	for _, past := range c.Before {
		if static, was := past.Static(key); was && !isStatic {
			r = r.outlive(static).Bury()
			break // the most recent one decides
		}
	}
	for _, past := range c.Before {
		if !c.Next.HasTenant(key.Tenant) && past.HasTenant(key.Tenant) {
			r = r.Remove()
		}
	}
	if isStatic && (r.exists && r.Removed || !r.Stored() && c.resizes(key)) {
		r = r.Forget(c.Now)
	}
	return c.sized(key, r, was.ConfigSize)
}

// sized makes a group's record name the size that the next config gives, unless that is smaller than the
// one that it named and there may be machines that are not known.
func (c Succession) sized(key fleet.GroupKey, r GroupRecord, before *int) GroupRecord {
	r = r.sized(c.Next, key)
	if !c.Counted && before != nil && r.ConfigSize != nil {
		r.ConfigSize = new(max(*before, *r.ConfigSize))
	}
	return r
}

// resizes reports whether an earlier config sets another size than the next one: a tombstone then
// shows that the difference is not a lost override, and which size was accepted.
func (c Succession) resizes(key fleet.GroupKey) bool {
	size := func(s *Shard) int { return s.Usage(key, GroupRecord{}).Instances }
	return slices.ContainsFunc(c.Before, func(past *Shard) bool {
		_, is := past.Static(key)
		return is && size(past) != size(c.Next)
	})
}

// sized makes a group's record name the size that an accepted config gives it, unless the record sets
// it. A config that does not define the group's template gives 0.
func (r GroupRecord) sized(accepted *Shard, key fleet.GroupKey) GroupRecord {
	_, isStatic := accepted.Static(key)
	if !r.Stored() || r.Unreadable() {
		return r
	}
	if r.Size != nil || !isStatic && (!r.exists || r.Removed) {
		r.ConfigSize = nil
	} else {
		size, _ := r.sizeBy(accepted, key)
		r.ConfigSize = &size
	}
	return r
}

// KeepTemplate makes a group's record keep its template's content while the tenant may not use
// the template in the next config.
func (c Succession) KeepTemplate(key fleet.GroupKey, r GroupRecord) GroupRecord {
	if _, isStatic := c.Next.Static(key); isStatic || !r.exists || r.unreadable != nil || r.Template == nil {
		return r
	}
	e := r.Entry
	e.Kept = e.keptOf(key.Tenant, c.Next, c.Before)
	return r.with(e)
}

// outlive turns a record's group into a dynamic one with the same hashes. The record's overrides
// are kept, and a removal stays a removal.
func (r GroupRecord) outlive(static Group) GroupRecord {
	if !r.exists || r.unreadable != nil || r.Removed || r.Undefined {
		return r
	}
	return r.with(r.outliving(static))
}
