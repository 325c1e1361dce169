package reconcile

import (
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// census is what the provider has, matched with the records, both ways.
type census struct {
	present   []pair           // an active record, and the VM it names
	missing   []fleet.Instance // a record whose VM is not there
	down      []fleet.Instance // a record whose VM is to be alive, and is not
	orphans   []provider.VM    // VMs of ours without a record
	leftovers []provider.VM    // VMs that their record does not mean: of a tombstone, or a second one
	claimed   []provider.VM    // VMs that only a malformed object speaks of
	nameless  bool             // any VM may be the one that a malformed object speaks of
	live      int              // records that are no tombstones
}

type pair struct {
	record fleet.Instance
	vm     provider.VM
}

// compare matches records and VMs by instance id. Of two VMs with one id the
// one that the record names stays; a record that names none yet means the
// oldest. A second one is left over only if the first is there: else the
// record's VM is missing, and nothing is concluded about the other; nor about
// any VM beyond its record that a malformed object may speak of.
func compare(records []fleet.Instance, claims claims, vms []provider.VM) census {
	c := census{nameless: claims.nameless}
	byID := make(map[fleet.InstanceID][]provider.VM, len(vms))
	for _, vm := range vms {
		if vm.State.Exists() {
			byID[vm.ID] = append(byID[vm.ID], vm)
		}
	}
	c.orphans = append(c.orphans, byID[""]...)
	delete(byID, "")
	for _, r := range records {
		c.match(r, byID[r.ID])
		delete(byID, r.ID)
	}
	for id, vms := range byID {
		if claims.ids[id] {
			c.claimed = append(c.claimed, vms...)
		} else {
			c.orphans = append(c.orphans, vms...)
		}
	}
	c.leftovers = slices.DeleteFunc(c.leftovers, func(vm provider.VM) bool { return claims.ids[vm.ID] })
	slices.SortFunc(c.orphans, provider.Compare)
	return c
}

func (c *census) match(r fleet.Instance, vms []provider.VM) {
	if r.Phase == fleet.Deleted {
		c.leftovers = append(c.leftovers, vms...)
		return
	}
	c.live++
	if r.Provider.ID == "" {
		slices.SortStableFunc(vms, func(a, b provider.VM) int { return a.CreatedAt.Compare(b.CreatedAt) })
	}
	own := slices.IndexFunc(vms, func(vm provider.VM) bool {
		return r.Provider.ID == "" || vm.ProviderID == r.Provider.ID
	})
	if own < 0 {
		c.missing = append(c.missing, r)
		return
	}
	c.leftovers = append(c.leftovers, slices.Delete(slices.Clone(vms), own, own+1)...)
	switch {
	case vms[own].State.Alive():
		c.present = append(c.present, pair{record: r, vm: vms[own]})
	case r.Phase != fleet.Deleting: // else it is on its way out
		c.down = append(c.down, r)
	}
}
