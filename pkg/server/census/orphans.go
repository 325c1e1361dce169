package census

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// Orphans decides about VMs of this shard without a record.
//
// An orphan is deleted only after two sweeps saw it, a Get confirmed it, its group is
// at size without it, and its agent has been quiet: an agent that calls with a valid
// certificate of its instance belongs to this shard, whatever happened to the record.
// If there are more orphans than Limit, none is deleted. Either is reported.
//
// A lost bucket, or a server with the wrong bucket, also produces orphans, and
// creating the seemingly missing instances would be as wrong as deleting the
// orphans. So when the VMs that may have had a record (those without one at the
// takeover, and those whose record vanished since) exceed the limit, the loop
// holds: no pass, no create, no delete, until a sweep finds that the records are
// back or the VMs are gone. Orphans that appear later in a term don't indicate a
// lost store and only suspend their own deletion.
type Orphans struct {
	called  func(fleet.InstanceID) time.Time
	lost    map[string]time.Time // instance and provider ids of VMs that may have had a record: when each was last an orphan
	seen    map[string]sighting  // by provider id
	absent  map[string]bool      // by provider id: a read by key found no record
	tooMany bool                 // none is deleted
	at      time.Time            // of the last judgement
	since   time.Time            // an agent is quiet if it has not called since then
}

// sighting is a VM without a record, in consecutive sweeps.
type sighting struct {
	first  time.Time
	sweeps int
}

// NewOrphans returns an empty Orphans. called returns when the agent of an instance without a record
// last called with a valid certificate; zero: never. It may be called by several goroutines.
func NewOrphans(called func(fleet.InstanceID) time.Time) Orphans {
	return Orphans{called: called, lost: map[string]time.Time{}, seen: map[string]sighting{}, absent: map[string]bool{}}
}

// forgetLost is how long a VM has to be missing from all lists until it counts as gone. It is
// longer than any lag of lists.
const forgetLost = time.Hour

// Limit returns how many of all VMs without a record, or of all records without a VM, are tolerated
// as individual failures: a tenth of the records, two at the least, but never all that there are.
func Limit(records, all int) int { return max(0, min(max(2, records/10), all-1)) }

// Lose records VMs that had no record when the term began.
func (o *Orphans) Lose(vms []provider.VM, now time.Time) {
	for _, vm := range vms {
		o.lost[vm.ProviderID] = now
	}
}

// countLost returns how many of the VMs may have had a record, and drops entries older than
// forgetLost.
func (o *Orphans) countLost(vms []provider.VM, now time.Time) (lost int) {
	for _, vm := range vms {
		known := false
		for _, name := range []string{vm.ProviderID, string(vm.ID)} {
			if _, ok := o.lost[name]; ok {
				o.lost[name], known = now, true
			}
		}
		if known {
			lost++
		}
	}
	maps.DeleteFunc(o.lost, func(_ string, last time.Time) bool { return now.Sub(last) > forgetLost })
	return lost
}

// Judge evaluates the orphans of a census. It returns whether the loop has to hold, and the
// problem to report; empty: none. An agent is quiet if it has not called for the given time.
func (o *Orphans) Judge(c Census, quiet time.Duration, now time.Time) (held bool, problem string) {
	limit, lost := Limit(c.Live, c.All), o.countLost(c.Orphans, now)
	o.at, o.since = now, now.Add(-quiet)
	o.tooMany = len(c.Orphans) > limit
	if !o.tooMany {
		return false, o.calling(c.Orphans)
	}
	outcome := "None of them was deleted; all other operations continue. "
	if lost > limit {
		outcome = "Nothing is created or deleted until this is resolved. "
	}
	text := fmt.Sprintf("%s no instance record, more than the limit of %d: %s. %s"+
		"Check that the server uses the right bucket, prefix, cluster and shard, and that no instance records were lost. "+
		"Then restore the records, or, if these VMs are really not needed, delete them at the provider. The next sweep checks again.",
		have(len(c.Orphans)), limit, Some(c.Orphans, nameOf), outcome)
	return lost > limit, text
}

// calling returns the problem that agents of orphans call; empty: none does.
func (o *Orphans) calling(vms []provider.VM) string {
	vms = slices.DeleteFunc(slices.Clone(vms), func(vm provider.VM) bool { return o.Quiet(vm, o.since) })
	if len(vms) == 0 {
		return ""
	}
	return fmt.Sprintf("%s no instance record, but an agent that calls with a valid certificate: %s. Such a VM is left alone, and its group "+
		"kept at size without it. Restore the record, or, if the VM is really not needed, delete it at the provider.",
		have(len(vms)), Some(vms, nameOf))
}

func have(vms int) string {
	if vms == 1 {
		return "1 VM of this shard has"
	}
	return fmt.Sprintf("%d VMs of this shard have", vms)
}

// Quiet reports whether a VM's agent has not called since the given time. Safe for concurrent use.
func (o *Orphans) Quiet(vm provider.VM, since time.Time) bool { return o.called(vm.ID).Before(since) }

// Nominate returns the VMs to delete of the census that was judged last. atSize reports whether a
// group is at size without its orphans.
func (o *Orphans) Nominate(c Census, held bool, atSize func(fleet.GroupKey) bool) (doomed []provider.VM) {
	seen := make(map[string]sighting, len(c.Orphans)+len(c.Leftovers))
	take := func(vms []provider.VM, ok func(provider.VM, sighting) bool) {
		for _, vm := range vms {
			s := o.seen[vm.ProviderID]
			if s.sweeps == 0 {
				s.first = o.at
			}
			s.sweeps++
			seen[vm.ProviderID] = s
			if s.sweeps >= 2 && vm.State != provider.StateDeleting && !held && ok(vm, s) {
				doomed = append(doomed, vm)
			}
		}
	}
	take(c.Leftovers, func(provider.VM, sighting) bool { return true })
	take(c.Orphans, func(vm provider.VM, s sighting) bool {
		return !o.tooMany && !c.Nameless && !s.first.After(o.since) && o.Quiet(vm, o.since) && atSize(Group(vm))
	})
	o.seen = seen
	return doomed
}

// LoseRecord records an instance whose record vanished.
func (o *Orphans) LoseRecord(id fleet.InstanceID, at time.Time) { o.lost[string(id)] = at }

// Unrecorded returns the VMs that have no record in memory (known reports false) and whose
// record was not read by key yet. It drops what was remembered of VMs that no longer exist.
func (o *Orphans) Unrecorded(vms []provider.VM, known func(provider.VM) bool) (unknown []provider.VM) {
	absent := map[string]bool{}
	for _, vm := range vms {
		switch {
		case known(vm):
		case o.absent[vm.ProviderID]:
			absent[vm.ProviderID] = true
		default:
			unknown = append(unknown, vm)
		}
	}
	o.absent = absent
	return unknown
}

// Absent records that a read by key found no record of the VM.
func (o *Orphans) Absent(vm provider.VM) { o.absent[vm.ProviderID] = true }

// Entries returns the sizes of the maps.
func (o *Orphans) Entries() (lost, seen int) { return len(o.lost), len(o.seen) }

// nameOf returns a VM's name for messages.
func nameOf(vm provider.VM) string {
	if vm.ID == "" {
		return vm.ProviderID
	}
	return fmt.Sprintf("%s (instance %s)", vm.ProviderID, vm.ID)
}

// Some lists the first 10 names and the number of the rest, for messages.
func Some[T any](all []T, nameOf func(T) string) string {
	const few = 10
	var names []string
	for _, one := range all[:min(few, len(all))] {
		names = append(names, nameOf(one))
	}
	if rest := len(all) - few; rest > 0 {
		names = append(names, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(names, ", ")
}
