package census

import (
	"cmp"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// This file decides what to confirm by a Get, since a list only indicates it.

// maxLeaving is how many deleting VMs are polled because of one list. The next one continues with
// the rest.
const maxLeaving = 200

// Suspects are the VMs to poll because of a list.
type Suspects struct {
	Refs     []provider.Ref
	Unlisted map[fleet.InstanceID]bool // active or draining, but not listed
}

// Leaving remembers where the next list continues to poll deleting VMs.
type Leaving struct{ next fleet.InstanceID }

// Suspects returns the VMs to poll, given the creates in progress, which return their VMs. All
// active and draining instances without a VM are included, since the absence check needs to know
// how many are absent.
func (c *Census) Suspects(underWay map[fleet.InstanceID]bool, l *Leaving) Suspects {
	found := Suspects{Unlisted: map[fleet.InstanceID]bool{}}
	var leaving []provider.Ref
	for _, r := range c.Missing {
		switch {
		case unmade(r), underWay[r.ID]:
		case r.Phase == fleet.Deleting:
			leaving = append(leaving, provider.RefOf(r))
		default:
			found.Refs = append(found.Refs, provider.RefOf(r))
			found.Unlisted[r.ID] = true
		}
	}
	for _, r := range c.Down {
		if !unmade(r) && !underWay[r.ID] {
			found.Refs = append(found.Refs, provider.RefOf(r))
		}
	}
	found.Refs = append(found.Refs, l.turn(leaving)...)
	return found
}

func unmade(r fleet.Instance) bool { return r.Phase == fleet.Pending && r.Provider.ID == "" }

func (l *Leaving) turn(leaving []provider.Ref) []provider.Ref {
	if len(leaving) <= maxLeaving {
		return leaving
	}
	slices.SortFunc(leaving, func(a, b provider.Ref) int { return cmp.Compare(a.ID, b.ID) })
	from, _ := slices.BinarySearchFunc(leaving, l.next, func(r provider.Ref, id fleet.InstanceID) int { return cmp.Compare(r.ID, id) })
	round := slices.Concat(leaving[from:], leaving[:from])
	l.next = round[maxLeaving].ID
	return round[:maxLeaving]
}
