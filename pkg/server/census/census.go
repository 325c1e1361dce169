package census

import (
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// Census is the result of matching the provider's VMs with the records.
type Census struct {
	Present   []Pair           // records with a live VM
	Missing   []fleet.Instance // records without a VM
	Down      []fleet.Instance // records whose VM should be alive and is not
	Orphans   []provider.VM    // VMs of this shard without a record
	Leftovers []provider.VM    // VMs of a tombstone, and duplicates of a record's VM
	Claimed   []provider.VM    // VMs claimed only by a malformed object
	Nameless  bool             // a malformed object does not name its instance, so it may belong to any VM
	Live      int              // number of records without tombstones
	All       int              // number of VMs that exist, of records without one, and of tombstones
}

// Pair is a record and its VM.
type Pair struct {
	Record fleet.Instance
	VM     provider.VM
}

// Claims are the instances of malformed objects. An object that can't be decoded as a record
// still claims its instance's VM: the VM is no orphan and is not changed.
type Claims struct {
	IDs      map[fleet.InstanceID]bool
	Nameless bool // a malformed object does not name its instance
}

// ClaimsOf returns the instances of malformed objects.
func ClaimsOf(objects []fleet.Malformed) Claims {
	c := Claims{IDs: map[fleet.InstanceID]bool{}}
	for _, m := range objects {
		if m.ID == "" {
			c.Nameless = true
		} else {
			c.IDs[m.ID] = true
		}
	}
	return c
}

// Group returns the key of the group in a VM's tags.
func Group(vm provider.VM) fleet.GroupKey {
	return fleet.GroupKey{Tenant: vm.Tags[provider.TagTenant], Name: vm.Tags[provider.TagGroup]}
}

// Compare matches records and VMs by instance id. If two VMs have the same id, the
// record's VM is the one with its provider ID or, if it has none yet, the oldest that is alive, or
// else the oldest. Other VMs are leftovers only if the record's VM exists and no malformed object
// claims the id.
func Compare(records []fleet.Instance, claims Claims, vms []provider.VM) Census {
	c := Census{Nameless: claims.Nameless}
	c.Present = slices.Grow(c.Present, min(len(records), len(vms))) // usually nearly all
	byID := make(map[fleet.InstanceID][]provider.VM, len(vms))
	for _, vm := range vms {
		if vm.State.Exists() {
			c.All++
			byID[vm.ID] = append(byID[vm.ID], vm)
		}
	}
	c.Orphans = append(c.Orphans, byID[""]...)
	delete(byID, "")
	for _, r := range records {
		c.match(r, byID[r.ID])
		delete(byID, r.ID)
	}
	for id, vms := range byID {
		if claims.IDs[id] {
			c.Claimed = append(c.Claimed, vms...)
		} else {
			c.Orphans = append(c.Orphans, vms...)
		}
	}
	c.Leftovers = slices.DeleteFunc(c.Leftovers, func(vm provider.VM) bool { return claims.IDs[vm.ID] })
	slices.SortFunc(c.Orphans, provider.Compare)
	return c
}

func (c *Census) match(r fleet.Instance, vms []provider.VM) {
	if r.Phase == fleet.Deleted {
		c.All++
		c.Leftovers = append(c.Leftovers, vms...)
		return
	}
	c.Live++
	if r.Provider.ID == "" {
		slices.SortStableFunc(vms, func(a, b provider.VM) int { return a.CreatedAt.Compare(b.CreatedAt) })
		provider.SortLiving(vms)
	}
	own := slices.IndexFunc(vms, func(vm provider.VM) bool {
		return r.Provider.ID == "" || vm.ProviderID == r.Provider.ID
	})
	if own < 0 {
		c.All++
		c.Missing = append(c.Missing, r)
		return
	}
	for n, vm := range vms {
		if n != own {
			c.Leftovers = append(c.Leftovers, vm)
		}
	}
	switch {
	case vms[own].State.Alive():
		c.Present = append(c.Present, Pair{Record: r, VM: vms[own]})
	case r.Phase != fleet.Deleting: // a deleting VM may be down
		c.Down = append(c.Down, r)
	}
}
