package shardtest

import (
	"maps"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// act checks the beginning of a mutation of the provider by a life.
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

// create checks the beginning of a create, given all machines.
func (b *book) create(id fleet.InstanceID, vms []provider.VM) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, ok := b.records[id]
	if !ok {
		b.violate("a machine is created for %s, which has no record", id)
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
		if r, ok := b.records[vm.ID]; ok && vm.State.Alive() && b.counts(r, key) && !unknowable(b, r) {
			alive[vm.ID] = true
		}
	}
	if most := b.most(key); len(alive) > most {
		b.violate("with %s there are %d machines of %s, want at most %d: %v", id, len(alive), group(i), most, slices.Sorted(maps.Keys(alive)))
	}
}

// unknowable reports whether a leader may not know of an instance: listings lack its record, and a
// former leader's call created the machine, perhaps after this one listed the machines, or so
// shortly before that a list which lags did not show it.
func unknowable(b *book, r fleet.Instance) bool {
	return r.Phase == fleet.Pending && (r.Provider.ID == "" || b.lags) && r.Epoch < b.holder.Epoch && b.unlisted(r)
}

func (b *book) counts(r fleet.Instance, key fleet.GroupKey) bool {
	if r.OnDemand || r.GroupKey() != key || !r.Phase.Active() || b.doomed[r.ID] {
		return false
	}
	return !slices.Contains(b.groups[key].Leaving, r.ID)
}
