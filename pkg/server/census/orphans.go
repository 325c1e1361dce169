package census

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// Orphans decides about VMs of this shard without a record.
//
// An orphan is deleted only after two sweeps saw it, a Get confirmed it, and its
// group is at size without it, so that an instance whose record was removed while
// its agent works is replaced first. If there are more orphans than Limit, none is
// deleted and a problem is reported.
//
// A lost bucket, or a server with the wrong bucket, also produces orphans, and
// creating the seemingly missing instances would be as wrong as deleting the
// orphans. So when the VMs that may have had a record (those without one at the
// takeover, and those whose record vanished since) exceed the limit, the loop
// holds: no pass, no create, no delete, until a sweep finds that the records are
// back or the VMs are gone. Orphans that appear later in a term don't indicate a
// lost store and only suspend their own deletion.
type Orphans struct {
	lost    map[string]time.Time // instance and provider ids of VMs that may have had a record: when each was last an orphan
	sweeps  map[string]int       // by provider id: consecutive sweeps that saw it
	absent  map[string]bool      // by provider id: a read by key found no record
	tooMany bool                 // none is deleted
}

// NewOrphans returns an empty Orphans.
func NewOrphans() Orphans {
	return Orphans{lost: map[string]time.Time{}, sweeps: map[string]int{}, absent: map[string]bool{}}
}

// forgetLost is how long a VM has to be missing from all lists until it counts as gone. It is
// longer than any lag of lists.
const forgetLost = time.Hour

// Limit returns how many VMs without a record, or records without a VM, are tolerated as
// individual failures.
func Limit(live int) int { return max(2, live/10) }

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
// problem to report; empty: none.
func (o *Orphans) Judge(c Census, now time.Time) (held bool, problem string) {
	limit, lost := Limit(c.Live), o.countLost(c.Orphans, now)
	o.tooMany = len(c.Orphans) > limit
	if !o.tooMany {
		return false, ""
	}
	outcome := "None of them was deleted; all other operations continue. "
	if lost > limit {
		outcome = "Nothing is created or deleted until this is resolved. "
	}
	text := fmt.Sprintf("%d VMs of this shard have no instance record, more than the limit of %d: %s. %s"+
		"Check that the server uses the right bucket, prefix, cluster and shard, and that no instance records were lost. "+
		"Then restore the records, or, if these VMs are really not needed, delete them at the provider. The next sweep checks again.",
		len(c.Orphans), limit, Some(c.Orphans, nameOf), outcome)
	return lost > limit, text
}

// Nominate returns the VMs to delete. atSize reports whether a group is at size without its
// orphans.
func (o *Orphans) Nominate(c Census, held bool, atSize func(fleet.GroupKey) bool) (doomed []provider.VM) {
	sweeps := make(map[string]int, len(c.Orphans)+len(c.Leftovers))
	take := func(vms []provider.VM, ok func(provider.VM) bool) {
		for _, vm := range vms {
			sweeps[vm.ProviderID] = o.sweeps[vm.ProviderID] + 1
			if sweeps[vm.ProviderID] >= 2 && vm.State != provider.StateDeleting && !held && ok(vm) {
				doomed = append(doomed, vm)
			}
		}
	}
	take(c.Leftovers, func(provider.VM) bool { return true })
	take(c.Orphans, func(vm provider.VM) bool { return !o.tooMany && !c.Nameless && atSize(Group(vm)) })
	o.sweeps = sweeps
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
func (o *Orphans) Entries() (lost, sweeps int) { return len(o.lost), len(o.sweeps) }

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
