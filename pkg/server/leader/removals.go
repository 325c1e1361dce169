package leader

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/groups"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/writes"
)

// This file decides what a static config removes compared to the previous one. Running
// machines are removed by a config only if the refresh that accepted it named their group, or
// the config itself does; no takeover and no restart accepts another one.

// live are the instances of a group that a removal would end.
type live struct {
	managed, onDemand []fleet.InstanceID
	// perhaps: there may be others that are not known yet.
	perhaps bool
}

// liveByGroup groups the pending and running instances by group. Those already leaving need no
// confirmation.
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

// removals returns the groups that have instances under one static config and would lose them by
// the next without a size that says so: it does not define them, sets their size to 0, or sets
// no size any more, so that the default would apply. Groups that the next config lists as
// removed are left out, and so are those that outlive their definition by their own record, and
// disabled groups, whose machines stay. A defined group that may have unknown instances counts as
// having some. Sorted by key.
func removals(from, to *config.Shard, records config.GroupRecords, groups map[fleet.GroupKey]live) (all []operators.Removal) {
	for key, l := range groups {
		was, is := keptBy(from, key, records[key]), keptBy(to, key, succeed(from, to, key, records[key]))
		if confirms(from, to, key, is.part) {
			continue
		}
		loses := was.loses(is)
		r := operators.Removal{Key: key, Emptied: is.part == empty, SizeUnset: is.part == unset, Keeps: is.keeps()}
		if loses {
			r.Instances = l.managed // otherwise they stay, or leave according to the previous config
		}
		if was.part != gone && is.part == gone {
			r.Instances = slices.Concat(r.Instances, l.onDemand)
		}
		if len(r.Instances) > r.Keeps || l.perhaps && loses {
			r.Instances = slices.Sorted(slices.Values(r.Instances))
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b operators.Removal) int { return a.Key.Compare(b.Key) })
	return all
}

// part is how much of a group a config keeps; higher means more.
type part int

const (
	gone  part = iota // nothing
	empty             // the on-demand instances
	unset             // as many as the default size, since no size is set
	whole             // as many as desired
)

// kept is what a config keeps of a group.
type kept struct {
	part part
	size int // at most
}

func keptBy(static *config.Shard, key fleet.GroupKey, r config.GroupRecord) kept {
	group, defined, _ := static.ResolveGroup(key, r)
	switch {
	case defined && group.Disabled != "":
		return kept{whole, config.MaxGroupSize}
	case !defined || group.Removed:
		return kept{part: gone}
	case group.Size == 0:
		return kept{part: empty}
	case group.SizeUnset:
		return kept{unset, group.Size}
	default:
		return kept{whole, group.Size}
	}
}

// loses reports whether the next config removes managed instances that this one keeps, without
// setting a smaller size that leaves some.
func (k kept) loses(next kept) bool {
	return k.part > empty && next.part < k.part && (next.part != unset || next.size < k.size)
}

// keeps returns how many managed instances a group keeps that loses others.
func (k kept) keeps() int {
	if k.part == unset {
		return k.size
	}
	return 0
}

// confirms reports whether a config that keeps so much of a group lists it as removed. That says
// nothing of a group that is emptied by its template, nor if the previous config listed it: the API
// may have created it since.
func confirms(from, to *config.Shard, key fleet.GroupKey, keeps part) bool {
	_, defined := to.Groups[key.Tenant][key.Name]
	return (keeps == gone || defined && keeps == empty) && lists(to, key) && !lists(from, key)
}

func lists(c *config.Shard, key fleet.GroupKey) bool { return slices.Contains(c.Removed, key.String()) }

// succeed returns a group's record after a switch from one static config to another.
func succeed(from, to *config.Shard, key fleet.GroupKey, r config.GroupRecord) config.GroupRecord {
	return config.Succession{Next: to, Before: []*config.Shard{from}}.Record(key, r)
}

// mayRemove reports whether a static config could remove groups of the previous one: whether it
// does depends on instances and dynamic groups.
func mayRemove(from, to *config.Shard) bool {
	for tenant := range from.Tenants {
		if !to.HasTenant(tenant) {
			return true
		}
	}
	for _, key := range from.StaticGroups() {
		if keptBy(to, key, config.GroupRecord{}).part < keptBy(from, key, config.GroupRecord{}).part {
			return true
		}
	}
	for name, template := range from.Templates { // groups created by the API may inherit their size
		next, is := to.Templates[name]
		if is && sizes(next) < sizes(template) {
			return true
		}
	}
	return false
}

// sizes returns how much of a group a template keeps that sets no size of its own.
func sizes(t config.Template) part {
	switch {
	case t.Size == nil:
		return unset
	case *t.Size == 0:
		return empty
	default:
		return whole
	}
}

// removalCheck determines what a static config removes from a term's groups.
type removalCheck struct {
	groups  *groups.Groups
	records writes.Records
	// accounted reports whether the VMs were listed and their records read. Until then, instances are
	// known only from a listing, and an incomplete one can show a group as empty, so every
	// defined group may have instances. The same holds while a record can't be read.
	// recorded: a sweep has found a record of each VM.
	accounted func() (listed, recorded bool)
}

// removals returns the removals of a static config that replaces from. The caller holds all
// turns, or is the only user yet.
func (c removalCheck) removals(from, to *config.Shard) (all []operators.Removal) {
	records, there := c.groups.Records(), liveByGroup(c.records.Instances())
	if !c.counted() {
		perhaps(there, from, records)
	}
	return removals(from, to, records, there)
}

// unused reports whether a group never had a machine, as far as is known: none of its records, which
// include those of deleted instances, is of one that registered.
func (c removalCheck) unused(key fleet.GroupKey) bool {
	return c.recorded() && !slices.ContainsFunc(c.records.Group(key), func(i fleet.Instance) bool { return i.RegisteredAt != nil })
}

// counted reports whether all machines are known.
func (c removalCheck) counted() bool {
	listed, _ := c.accounted()
	return listed && len(c.records.Malformed()) == 0
}

func (c removalCheck) recorded() bool { _, recorded := c.accounted(); return recorded }

// perhaps marks all groups that a config defines as possibly having unknown instances.
func perhaps(there map[fleet.GroupKey]live, static *config.Shard, records config.GroupRecords) {
	defined, _ := static.Resolve(records)
	for key := range defined {
		l := there[key]
		l.perhaps = true
		there[key] = l
	}
}

// permits returns an error for a static config with removals that were not accepted, or if
// removals were accepted of groups that the config keeps.
func (c removalCheck) permits(from, to *config.Shard, accepted []fleet.GroupKey) error {
	all := c.removals(from, to)
	if err := c.refuses(all, accepted); err != nil {
		return err
	}
	var stay []rpc.Failure
	for _, key := range accepted {
		named := func(r operators.Removal) bool { return r.Key == key }
		if !slices.ContainsFunc(all, named) && c.staysBy(from, to, key) {
			stay = append(stay, keptFailure(key))
		}
	}
	return keptError(stay)
}

// refuses returns an error for removals that were not accepted.
func (c removalCheck) refuses(all []operators.Removal, accepted []fleet.GroupKey) error {
	var refused []rpc.Failure
	for _, r := range all {
		if !slices.Contains(accepted, r.Key) {
			refused = append(refused, r.Failure())
		}
	}
	if len(refused) == 0 {
		return nil
	}
	return &unaccepted{removals: all, PreconditionError: rpc.PreconditionError{
		Message:  "the config removes groups that have instances: nothing was changed; name them in accept_removals",
		Failures: refused,
	}}
}

// unasked refuses a config that removes groups which have instances, or may have: an incomplete
// listing proves nothing. It permits those that were accepted, and every config if no accepted
// one is known to compare with.
func (c removalCheck) unasked(last appliedConfig, next Accepted) error {
	if last.shard == nil || bytes.Equal(last.body, next.body) {
		return nil
	}
	return c.refuses(c.removals(last.shard, next.shard), next.accepted)
}

// areGone returns an error if removals were accepted of groups that the running config keeps, and
// that were not accepted with it.
func (c removalCheck) areGone(now Accepted, accepted []fleet.GroupKey) error {
	var stay []rpc.Failure
	for _, key := range accepted {
		lost := slices.Contains(now.accepted, key) // what it had beyond the default size
		if group, ok := c.groups.Group(key); ok && !lost && (group.Disabled != "" || !group.Removed && group.Size > 0) {
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
		Message:  "accept_removals names groups that the config keeps: nothing was changed; omit them, or change the config",
		Failures: stay,
	}
}

// staysBy reports whether a group still has its instances under the next static config.
func (c removalCheck) staysBy(from, to *config.Shard, key fleet.GroupKey) bool {
	r := c.groups.Records()[key]
	was, is := keptBy(from, key, r), keptBy(to, key, succeed(from, to, key, r))
	return is.part == whole || is.part == unset && was.part == unset
}

// unaccepted is the refusal of a config with removals that were not accepted.
type unaccepted struct {
	rpc.PreconditionError

	removals []operators.Removal
}

// As lets errors.As find the rpc.PreconditionError.
func (e *unaccepted) As(target any) bool {
	if t, ok := target.(**rpc.PreconditionError); ok {
		*t = &e.PreconditionError
		return true
	}
	return false
}

// awaitedBy returns the removals that an error is about; nil for other errors.
func awaitedBy(err error) []operators.Removal {
	var u *unaccepted
	if errors.As(err, &u) {
		return u.removals
	}
	return nil
}

// confirmation says what config/ waits for, and the command that accepts it.
func confirmation(shard string, awaits []operators.Removal) string {
	var what, flags []string
	for _, r := range awaits {
		f := r.Failure()
		what = append(what, f.Subject+" ("+f.Description+")")
		flags = append(flags, " --accept-removal "+f.Subject)
	}
	return fmt.Sprintf("%s removes groups that have instances; the last accepted config stays active until confirmed: %.2000s; "+
		"to accept it: nstance-admin config refresh --shard %s%.2000s, or list the groups in its field removed",
		ConfigKey(shard), strings.Join(what, "; "), shard, strings.Join(flags, ""))
}
