package config

import (
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
)

// GroupRecords are records by group.
type GroupRecords map[fleet.GroupKey]GroupRecord

// Resolve merges the static groups with records. Args and vars merge defaults, template, group
// and record, in this order. The groups share no memory with each other, s or the records.
//
// An invalid record is reported and disables its group, without effect on others. A record
// whose tenant or group is not a valid ID is only reported. For a static group, the record may
// set size, instance_type, vars, rotation, rollout_paused, aborted and leaving; other fields that differ from static
// config are reported and ignored, and so are unknown fields.
func (s *Shard) Resolve(records GroupRecords) (map[fleet.GroupKey]fleet.Group, Problems) {
	keys := map[fleet.GroupKey]bool{}
	for _, key := range slices.Concat(s.StaticGroups(), slices.Collect(maps.Keys(records))) {
		keys[key] = true
	}
	groups, problems := map[fleet.GroupKey]fleet.Group{}, Problems(nil)
	for key := range keys {
		group, ok, wrong := s.ResolveGroup(key, records[key])
		if ok {
			groups[key] = group
		}
		for _, p := range wrong {
			problems.addf(p.Path, "%s", p.Message)
		}
	}
	return groups, problems.sorted()
}

// StaticGroups returns the keys of the static groups, unsorted.
func (s *Shard) StaticGroups() (keys []fleet.GroupKey) {
	for tenant, groups := range s.Groups {
		for name := range groups {
			keys = append(keys, fleet.GroupKey{Tenant: tenant, Name: name})
		}
	}
	return keys
}

// ResolveGroup is Resolve for one group. It returns false if static config does not define it
// and there is no record, or its key is not valid.
func (s *Shard) ResolveGroup(key fleet.GroupKey, r GroupRecord) (group fleet.Group, ok bool, problems Problems) {
	if _, isStatic := s.Static(key); !isStatic && !r.exists {
		return fleet.Group{}, false, nil
	}
	path := join(join("groups", key.Tenant), key.Name)
	if err := checkKey(key); err != nil {
		problems.addf(path, "%v", err)
		return fleet.Group{}, false, problems
	}
	group, wrong, ignored := s.resolve(key, r.entry())
	group.RecordRevision = r.StoredRevision()
	if len(wrong) > 0 {
		group.Disabled = wrong.Error()
	}
	for _, p := range slices.Concat(wrong, ignored) {
		problems.addf(below(path, p.Path), "%s", p.Message)
	}
	return group, true, problems
}

// GroupUsage is groups' usage of a tenant's quota.
type GroupUsage struct {
	Groups    int
	Instances int // the sum of their sizes
	Bytes     int // of their records
}

// Plus returns the sum.
func (u GroupUsage) Plus(other GroupUsage) GroupUsage {
	return GroupUsage{u.Groups + other.Groups, u.Instances + other.Instances, u.Bytes + other.Bytes}
}

// Minus returns the difference.
func (u GroupUsage) Minus(other GroupUsage) GroupUsage {
	return GroupUsage{u.Groups - other.Groups, u.Instances - other.Instances, u.Bytes - other.Bytes}
}

// Usage returns the usage of one group with its record.
func (s *Shard) Usage(key fleet.GroupKey, r GroupRecord) (u GroupUsage) {
	static, isStatic := s.Static(key)
	if isStatic || r.exists && !r.Removed {
		u.Groups = 1
	}
	u.Instances = s.sizeWith(static, r.entry())
	if !r.exists || s.QuotaOf(key.Tenant).ConfigBytes == nil {
		return u
	}
	r.Replaced, r.Aborted = nil, nil // which no caller asked for
	if data, err := r.Encode(); err == nil {
		u.Bytes = len(data)
	}
	return u
}

// CheckUsage reports whether a tenant with usage has, after the change of a group's record
// from was to is, stays within its quota. The error is a *QuotaError.
//
// Whether more instances are allowed does not depend on sizes alone: leaving instances still
// run, and would otherwise exceed the quota until their drains end. living is called only for
// that. It need not include instances that are being replaced within a size.
func (s *Shard) CheckUsage(key fleet.GroupKey, has GroupUsage, was, is GroupRecord, living func() Living) error {
	q := s.QuotaOf(key.Tenant)
	if q.Groups == nil && q.Instances == nil && q.ConfigBytes == nil {
		return nil
	}
	then := has.Minus(s.Usage(key, was)).Plus(s.Usage(key, is))
	if is.ofSizeAlone(was) { // neither scaling down nor a pause must fail for lack of bytes
		then.Bytes = has.Bytes
	}
	var live Living
	if q.Instances != nil && then.Instances > has.Instances {
		live = living()
	}
	for _, c := range []struct {
		field   string
		limit   *int
		was, is int
		living  Living
	}{
		{"groups", q.Groups, has.Groups, then.Groups, Living{}},
		{"instances", q.Instances, has.Instances + live.Leaving, then.Instances + live.Leaving, live},
		{"config_bytes", q.ConfigBytes, has.Bytes, then.Bytes, Living{}},
	} {
		if err := CheckLimit(key.Tenant, c.field, c.limit, c.was, c.is, c.living); err != nil {
			return err
		}
	}
	return nil
}

// ofSizeAlone reports whether two records differ only in the number of instances, and in whether the
// rollout is paused.
func (r GroupRecord) ofSizeAlone(was GroupRecord) bool {
	return GroupRecord{Entry: r.entry().withoutSize()}.Same(GroupRecord{Entry: was.entry().withoutSize()})
}
