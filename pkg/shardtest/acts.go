package shardtest

import (
	"maps"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// act is told that a life begins a mutation of the provider, and what that deletes.
func (b *book) act(life string, deletes []provider.Ref) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ref := range deletes {
		r, known := b.records[ref.ID]
		if known && !r.Phase.Ending() && (r.Provider.ID == "" || r.Provider.ID == ref.ProviderID) {
			b.violate("the machine of %s is deleted while its record is %s", ref.ID, r.Phase)
		}
	}
	epoch := b.epochs[life]
	if epoch < b.acted || epoch == 0 {
		b.violate("%s acts in epoch %d, after %s acted in epoch %d", life, epoch, b.actor, b.acted)
		return
	}
	b.acted, b.actor = epoch, life
}

// create is told that a create begins, and of all machines that there are.
func (b *book) create(id fleet.InstanceID, vms []provider.VM) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, ok := b.records[id]
	if !ok {
		b.violate("a machine is made for %s, of which there is no record", id)
		return
	}
	first := !b.attempted[id]
	b.attempted[id] = true
	if i.OnDemand {
		return
	}
	if first {
		b.judgePace(i, time.Now())
	}
	key, alive := i.GroupKey(), map[fleet.InstanceID]bool{id: true}
	for _, vm := range vms {
		if r, ok := b.records[vm.ID]; ok && vm.State.Alive() && b.counts(r, key) {
			alive[vm.ID] = true
		}
	}
	if most := b.most(key); len(alive) > most {
		b.violate("%s makes it %d machines of %s, which may have %d at most: %v", id, len(alive), group(i), most, slices.Sorted(maps.Keys(alive)))
	}
}

func (b *book) counts(r fleet.Instance, key fleet.GroupKey) bool {
	if r.OnDemand || r.GroupKey() != key || !r.Phase.Active() || b.doomed[r.ID] {
		return false
	}
	e, _ := b.dynamic.Entry(key)
	return !slices.Contains(e.Leaving, r.ID)
}
