package aws

import (
	"maps"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// rememberFor is how long an instance that no read shows any more is remembered: EC2
// itself shows for an hour what was terminated.
const rememberFor = time.Hour

// known are the instances of this scope that EC2 has shown. A delete needs them: the
// next read may be one of a moment before the instance, and what it does not show could
// as well be somebody else's. Safe for concurrent use.
type known struct {
	mu  sync.Mutex
	vms map[string]sighting // by provider id
}

type sighting struct {
	ref provider.Ref
	at  time.Time // the last one
}

// note remembers what a read or a launch has shown.
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

// forget drops what was seen too long ago. It is called after a list, which has seen
// all that there is.
func (k *known) forget(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.vms, func(_ string, s sighting) bool { return now.Sub(s.at) > rememberFor })
}

// drop forgets an instance that is gone, or another scope's.
func (k *known) drop(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.vms, id)
}

// named returns what ref names.
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
