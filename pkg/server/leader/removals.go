package leader

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/operators"
)

// This file decides what a static config takes away from the one before it. Machines
// that work go by a config only when the group that they belong to was named by the
// refresh that accepted it; no takeover and no restart accepts such a config.

// live are the instances of a group that a removal would end.
type live struct {
	managed, onDemand []fleet.InstanceID
	// perhaps: there may be others, of which nothing is known yet.
	perhaps bool
}

// liveByGroup sorts instances that are pending or running by their groups. Those that
// leave already are no reason to ask.
func liveByGroup(all []fleet.Instance) map[fleet.GroupKey]live {
	groups := map[fleet.GroupKey]live{}
	for _, i := range all {
		if !i.Phase.Active() {
			continue
		}
		l := groups[i.GroupKey()]
		if i.OnDemand {
			l.onDemand = append(l.onDemand, i.ID)
		} else {
			l.managed = append(l.managed, i.ID)
		}
		groups[i.GroupKey()] = l
	}
	return groups
}

// removals are the groups with instances that run by one static config, and by the
// next would be emptied: it does not define them, or sets their size to 0. One that
// lives on by an entry of its own is none of them, nor is one that is disabled, whose
// machines stay. One that is wanted and may have instances of which nothing is known
// counts as one that has. Sorted by key.
func removals(from, to *config.Shard, entries config.Dynamic, groups map[fleet.GroupKey]live) (all []operators.Removal) {
	tenants := map[string]bool{}
	for key := range groups {
		tenants[key.Tenant] = true
	}
	after := entries
	for tenant := range tenants {
		after = succeed(after, tenant, to, []*config.Shard{from})
	}
	for key, l := range groups {
		was, is := keeps(from, entries, key), keeps(to, after, key)
		r := operators.Removal{Key: key, Emptied: is == empty}
		if was == whole && is != whole {
			r.Instances = l.managed // else they stay, or leave by what ran before
		}
		if was != gone && is == gone {
			r.Instances = slices.Concat(r.Instances, l.onDemand)
		}
		if len(r.Instances) > 0 || l.perhaps && was == whole && is != whole {
			r.Instances = slices.Sorted(slices.Values(r.Instances))
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b operators.Removal) int { return a.Key.Compare(b.Key) })
	return all
}

// kept is what becomes of a group's instances, the more the higher.
type kept int

const (
	gone  kept = iota // all go
	empty             // those that the group counts go
	whole             // as many as are wanted stay
)

func keeps(static *config.Shard, entries config.Dynamic, key fleet.GroupKey) kept {
	group, defined, _ := static.ResolveGroup(entries, key)
	switch {
	case defined && group.Disabled != "":
		return whole
	case !defined || group.Removed:
		return gone
	case group.Size == 0:
		return empty
	default:
		return whole
	}
}

// mayRemove reports whether a static config could take away groups of the one before:
// whether it does so depends on instances and dynamic groups.
func mayRemove(from, to *config.Shard) bool {
	for tenant := range from.Tenants {
		if !to.HasTenant(tenant) {
			return true
		}
	}
	for tenant, groups := range from.Groups {
		for name := range groups {
			key := fleet.GroupKey{Tenant: tenant, Name: name}
			if keeps(to, config.Dynamic{}, key) < keeps(from, config.Dynamic{}, key) {
				return true
			}
		}
	}
	for name, template := range from.Templates { // by which groups from the API may have their size
		next, is := to.Templates[name]
		if is && sized(template) && !sized(next) {
			return true
		}
	}
	return false
}

func sized(t config.Template) bool {
	return t.Size != nil && *t.Size > 0
}

// removalCheck judges what static configs take away from a term's groups.
type removalCheck struct {
	groups  *groups
	records records
	// accounted reports whether the record of each VM is known. Until then the instances
	// are known from a listing alone. One that lacks some shows a group as empty, so every
	// group that is wanted may have instances.
	accounted func() bool
}

// removals are those of a static config that comes after from. A tenant whose dynamic
// groups can't be read counts as having none, and unread holds its name. The caller
// holds all turns, or is the only one yet.
func (c removalCheck) removals(from, to *config.Shard) (all []operators.Removal, unread map[string]bool) {
	entries, unread := c.groups.dynamic(from)
	there := liveByGroup(c.records.Instances())
	if !c.accounted() {
		perhaps(there, from, entries)
	}
	return removals(from, to, entries, there), unread
}

// perhaps notes of all groups that a config defines that they may have other instances.
func perhaps(there map[fleet.GroupKey]live, static *config.Shard, entries config.Dynamic) {
	defined, _ := static.Resolve(entries)
	for key := range defined {
		l := there[key]
		l.perhaps = true
		there[key] = l
	}
}

// permits refuses a static config that takes away what was not accepted, and removals
// that were accepted although it keeps the group. What can't be judged because dynamic
// groups can't be read is refused where they are carried over, or stays.
func (c removalCheck) permits(from, to *config.Shard, accepted []fleet.GroupKey) error {
	all, unread := c.removals(from, to)
	var refused, stay []rpc.Failure
	for _, r := range all {
		if !unread[r.Key.Tenant] && !slices.Contains(accepted, r.Key) {
			refused = append(refused, r.Failure())
		}
	}
	if len(refused) > 0 {
		return &unaccepted{removals: all, PreconditionError: rpc.PreconditionError{
			Message:  "the config takes away groups that have instances: nothing changes until accept_removals names them",
			Failures: refused,
		}}
	}
	for _, key := range accepted {
		named := func(r operators.Removal) bool { return r.Key == key }
		if !slices.ContainsFunc(all, named) && c.staysBy(from, to, key) {
			stay = append(stay, keptFailure(key))
		}
	}
	return keptError(stay)
}

// areGone refuses removals that were accepted of groups that the config which runs keeps.
func (c removalCheck) areGone(accepted []fleet.GroupKey) error {
	var stay []rpc.Failure
	for _, key := range accepted {
		if group, ok := c.groups.Group(key); ok && (group.Disabled != "" || !group.Removed && group.Size > 0) {
			stay = append(stay, keptFailure(key))
		}
	}
	return keptError(stay)
}

func keptFailure(key fleet.GroupKey) rpc.Failure {
	return rpc.Failure{Type: rpc.GroupKept, Subject: key.String(), Description: "the config keeps it"}
}

// keptError is nil if there are no failures.
func keptError(stay []rpc.Failure) error {
	if len(stay) == 0 {
		return nil
	}
	return &rpc.PreconditionError{
		Message:  "removals were accepted of groups that stay: leave them out of accept_removals, or change the config; nothing changed",
		Failures: stay,
	}
}

// staysBy reports whether a group goes on to have instances by the next static config.
func (c removalCheck) staysBy(from, to *config.Shard, key fleet.GroupKey) bool {
	entries, _ := c.groups.dynamic(from)
	return keeps(to, succeed(entries, key.Tenant, to, []*config.Shard{from}), key) == whole
}

// unaccepted is the refusal of a config for removals that were not accepted.
type unaccepted struct {
	rpc.PreconditionError

	removals []operators.Removal
}

// As makes it an rpc.PreconditionError to errors.As.
func (e *unaccepted) As(target any) bool {
	if t, ok := target.(**rpc.PreconditionError); ok {
		*t = &e.PreconditionError
		return true
	}
	return false
}

// awaitedBy are the removals that an error is about; nil when it is another one.
func awaitedBy(err error) []operators.Removal {
	var u *unaccepted
	if errors.As(err, &u) {
		return u.removals
	}
	return nil
}

// confirmation says what config/ waits for, and what to type.
func confirmation(shard string, awaits []operators.Removal) string {
	var what, flags []string
	for _, r := range awaits {
		f := r.Failure()
		what = append(what, f.Subject+" ("+f.Description+")")
		flags = append(flags, " --accept-removal "+f.Subject)
	}
	return fmt.Sprintf("%s takes away groups that have instances; the last accepted config runs until confirmed: %.2000s; "+
		"to accept it: nstance-admin config refresh --shard %s%.2000s",
		ConfigKey(shard), strings.Join(what, "; "), shard, strings.Join(flags, ""))
}
