package config

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// ChangeGroup validates a change of a group and applies it to its record. The error wraps
// ErrRestricted, ErrNoGroup, ErrRemoved, ErrExists, or is a ManagedError, or a Problems with field names
// as paths.
// Idempotent.
func (s *Shard) ChangeGroup(key fleet.GroupKey, was GroupRecord, c Change, checks Checks) (GroupRecord, error) {
	if c.repeats(was) {
		return was, nil
	}
	entry, err := s.checkedChange(key, was, c, checks)
	if err != nil {
		return GroupRecord{}, fmt.Errorf("change group %s: %w", key, err)
	}
	if _, isStatic := s.Static(key); isStatic {
		missing, undefined := entry.Missing, entry.Undefined
		entry = entry.narrowed()
		entry.Missing, entry.Undefined = missing, undefined
	}
	return was.revised(entry).sized(s, key), nil
}

// checkedChange returns the group's entry after a change, if the change is valid.
func (s *Shard) checkedChange(key fleet.GroupKey, was GroupRecord, c Change, checks Checks) (Entry, error) {
	if err := fleet.CheckName(key.Name); err != nil {
		return Entry{}, Problems{{Path: "group", Message: err.Error()}}
	}
	if !s.HasTenant(key.Tenant) {
		return Entry{}, Problems{{Path: "tenant", Message: s.CheckTenant(key.Tenant).Error()}}
	}
	if err := s.checkExistence(key, was, c); err != nil {
		return Entry{}, err
	}
	if err := was.permits(key, c.By); err != nil && !c.OnlyPauses() {
		return Entry{}, err
	}
	problems := checkRemove(c)
	if len(problems) > 0 {
		c.Remove = nil // already reported
	}
	before := was.entry()
	if c.Size != nil && len(c.Remove)+len(c.Left) > 0 {
		current, _, _ := s.resolve(key, before)
		c.Size = new(c.SizeFrom(current.Size, current.Leaving))
	}
	after, err := before.changed(c)
	if err != nil {
		problems.addf("vars", "%v", err)
		return Entry{}, problems
	}
	group, wrong, _ := s.resolve(key, after)
	if err := checks.archFits(group.InstanceType, group.Arch); err != nil {
		problems.addf("instance_type", "%v", err)
	}
	problems = slices.Concat(problems, after.check(), wrong)
	old, _, _ := s.resolve(key, before)
	if len(problems) == 0 && rebuilt(old, group) {
		problems, _ = checks.refused(s, group) // what can't be rendered may get vars per instance
	}
	if old.AskedFor().Infra != group.AskedFor().Infra {
		after = replacing(s, key, before, after)
	}
	return after, problems.sorted().Err()
}

// entry returns the entry of a record; a tombstone only has its revision.
func (r GroupRecord) entry() Entry {
	if !r.exists {
		return Entry{Revision: r.Revision}
	}
	return r.Entry
}

// checkExistence checks that the group of a change exists, that the group of a create does
// not, and that a static group is changed only where permitted.
func (s *Shard) checkExistence(key fleet.GroupKey, was GroupRecord, c Change) error {
	static, isStatic := s.Static(key)
	switch {
	case c.Create && c.Template == nil:
		return Problems{{Path: "template", Message: "required with create: want the template of the group's instances"}}
	case c.Create && (isStatic || was.exists && !was.givesWay(c)):
		return ErrExists
	case isStatic:
		return s.checkRestricted(static, c)
	case !was.exists && c.Template == nil:
		return ErrNoGroup
	case was.Removed && c.Template == nil:
		return ErrRemoved
	case was.Undefined && c.KeepsHold():
		return ErrUnknownGroup
	}
	return nil
}

// givesWay reports whether a create may replace the record: it is being removed, or only its
// instances are known, or it equals what the create makes.
func (r GroupRecord) givesWay(c Change) bool {
	return r.Removed || r.Undefined || r.makes(c)
}

// makes reports whether an entry equals the result of a change that creates the group, or that
// defines a group of which only the size was known, so that a create whose reply was lost can be
// repeated.
func (e Entry) makes(c Change) bool {
	want, err := Entry{}.changed(c)
	if err != nil || e.unreadable != nil {
		return false
	}
	e.Revision, e.Manager, e.Replaced, e.unknown = want.Revision, want.Manager, want.Replaced, want.unknown
	if e.SizeKept && c.Size == nil {
		e.Size, e.SizeKept = want.Size, want.SizeKept
	}
	return reflect.DeepEqual(e, want)
}

// RemoveGroup checks that a group may be deleted, and marks it as removed. The error wraps
// ErrRestricted for a static group, or ErrNoGroup, or is a ManagedError. Idempotent.
func (s *Shard) RemoveGroup(key fleet.GroupKey, was GroupRecord, by By) (GroupRecord, error) {
	if _, isStatic := s.Static(key); isStatic {
		return GroupRecord{}, fmt.Errorf("delete group %s: %w", key, ErrRestricted)
	}
	if !was.exists {
		return GroupRecord{}, fmt.Errorf("delete group %s: %w", key, ErrNoGroup)
	}
	if err := was.permits(key, by); err != nil {
		return GroupRecord{}, fmt.Errorf("delete group %s: %w", key, err)
	}
	return was.Remove(), nil
}

// Remove marks a dynamic group to be scaled to zero, with drains, and then deleted. It is a
// no-op without a record.
func (r GroupRecord) Remove() GroupRecord {
	if !r.exists {
		return r
	}
	e := r.Entry
	if e.unreadable != nil {
		e = Entry{Revision: e.Revision}
	}
	e.Missing, e.Undefined, e.Manager = false, false, ""
	e.Removed, e.Leaving, e.Size, e.SizeKept, e.Replaced, e.Aborted = true, nil, nil, false, nil, nil
	return r.revised(e)
}

// Bury makes a group that has instances but no record scale to zero, with drains, and be
// deleted. It is a no-op for a record with a definition.
func (r GroupRecord) Bury() GroupRecord {
	if r.exists && !r.Undefined {
		return r
	}
	return r.revised(Entry{Removed: true})
}

// Forget replaces a group's record by a tombstone. It is a new revision if there was a record,
// so that an instance which a static group creates afterwards shows that the earlier record is
// obsolete. A later record has a later revision.
func (r GroupRecord) Forget(now time.Time) GroupRecord {
	if r.DeletedAt != nil {
		return r
	}
	now = now.UTC().Truncate(time.Second)
	revision := r.Revision
	if r.exists {
		revision = r.nextRevision()
	}
	return GroupRecord{Header: r.Header, DeletedAt: &now, Entry: Entry{Revision: revision, unknown: r.unknown}}
}

// ResetGroup drops the overrides of a static group. For a dynamic group whose record was
// missing, it restores the last known one; otherwise it is a no-op. The error wraps
// ErrNoGroup, ErrRemoved or ErrUnknownGroup, or is a ManagedError.
func (s *Shard) ResetGroup(key fleet.GroupKey, was GroupRecord, by By, now time.Time) (GroupRecord, error) {
	if err := was.permits(key, by); err != nil {
		return GroupRecord{}, fmt.Errorf("reset group %s: %w", key, err)
	}
	if _, isStatic := s.Static(key); isStatic {
		return was.Forget(now).sized(s, key), nil
	}
	switch {
	case !was.exists:
		return GroupRecord{}, fmt.Errorf("reset group %s: %w", key, ErrNoGroup)
	case was.Removed:
		return GroupRecord{}, fmt.Errorf("reset group %s: %w", key, ErrRemoved)
	case !was.Missing:
		return was, nil
	case was.Undefined:
		return GroupRecord{}, fmt.Errorf("reset group %s: %w", key, ErrUnknownGroup)
	}
	e := was.Entry
	e.Missing, e.Manager = false, by.Manager
	return was.revised(e), nil
}

// ClearLeaving removes IDs from the list of leaving instances.
func (r GroupRecord) ClearLeaving(ids []fleet.InstanceID) GroupRecord {
	if !r.exists || len(r.Leaving) == 0 {
		return r
	}
	e := r.Entry
	e.Leaving = slices.DeleteFunc(slices.Clone(e.Leaving), func(id fleet.InstanceID) bool { return slices.Contains(ids, id) })
	if len(e.Leaving) == 0 {
		e.Leaving = nil
	}
	return r.with(e)
}
