package aws

import (
	"maps"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// rememberFor is how long an instance that reads no longer show is remembered. EC2 shows
// terminated instances for an hour.
const rememberFor = time.Hour

// known holds the instances of this scope that EC2 has shown. Deletes need it: a stale read may
// not show an instance yet, and an unseen instance could belong to another scope. Safe for
// concurrent use.
type known struct {
	mu  sync.Mutex
	vms map[string]sighting // by provider id
}

type sighting struct {
	ref provider.Ref
	at  time.Time // last seen
}

// note records the instances shown by a read or a launch.
func (k *known) note(vms []provider.VM, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.vms == nil {
		k.vms = map[string]sighting{}
	}
	for _, vm := range vms {
		if vm.State.Exists() {
			k.vms[vm.ProviderID] = sighting{vm.Ref(), now}
		} else {
			delete(k.vms, vm.ProviderID)
		}
	}
}

// forget drops instances last seen too long ago. It is called after a list, which has seen all
// instances.
func (k *known) forget(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.vms, func(_ string, s sighting) bool { return now.Sub(s.at) > rememberFor })
}

// drop removes an instance that is gone or belongs to another scope.
func (k *known) drop(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.vms, id)
}

// named returns the known VMs that ref matches.
func (k *known) named(ref provider.Ref) (out []provider.VM) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, s := range k.vms {
		if vm := (provider.VM{ID: s.ref.ID, ProviderID: id, State: provider.StateUnknown}); ref.Names(vm) {
			out = append(out, vm)
		}
	}
	return out
}
