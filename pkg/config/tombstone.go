package config

import (
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
)

// This file is about tombstones: entries that say that a group is to be emptied, and then
// forgotten. Only they, and sizes, are evidence on which machines of a group go.

// Bury writes the tombstone of a group that has instances and no entry: it is to be
// scaled to zero, with drains, and then forgotten. An entry that defines something stays
// as it is. d is not modified.
func (d Dynamic) Bury(key fleet.GroupKey) Dynamic {
	if entry, ok := d.Entry(key); ok && !entry.Undefined {
		return d
	}
	return d.revised(key, Entry{Removed: true})
}

// Reset drops what overrides a group that static config names. A group of its own whose
// record was missing has it again, as it was known; one whose record is there stays as
// it is. The error wraps ErrNoGroup, ErrRemoved or ErrUnknownGroup. d is not modified.
func (s *Shard) Reset(d Dynamic, key fleet.GroupKey) (Dynamic, error) {
	entry, ok := d.Entry(key)
	if _, isStatic := s.Static(key); isStatic {
		return d.Forget(key), nil
	}
	switch {
	case !ok:
		return Dynamic{}, fmt.Errorf("reset group %s: %w", key, ErrNoGroup)
	case entry.Removed:
		return Dynamic{}, fmt.Errorf("reset group %s: %w", key, ErrRemoved)
	case !entry.Missing:
		return d, nil
	case entry.Undefined:
		return Dynamic{}, fmt.Errorf("reset group %s: %w", key, ErrUnknownGroup)
	}
	entry.Missing = false
	return d.revised(key, entry), nil
}

// Succeed marks, among a tenant's groups, those that last named and next does not and
// that have no entry to live on by: so that every later leader knows that they are to be
// emptied. A mark of one that next names is dropped. d is not modified.
func (d Dynamic) Succeed(tenant string, last, next *Shard) Dynamic {
	for name := range last.Groups[tenant] {
		key := fleet.GroupKey{Tenant: tenant, Name: name}
		if _, is := next.Static(key); !is {
			d = d.Bury(key)
		}
	}
	return d.Revive(tenant, next)
}

// Revive drops the marks of groups that are to be emptied of those that static config
// names. d is not modified.
func (d Dynamic) Revive(tenant string, next *Shard) Dynamic {
	for name, entry := range d.Groups[tenant] {
		key := fleet.GroupKey{Tenant: tenant, Name: name}
		if _, is := next.Static(key); is && entry.Removed {
			d = d.Forget(key)
		}
	}
	return d
}
