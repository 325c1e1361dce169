package fake

import (
	"net/netip"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// Changes of machines behind the provider's back. Each reports whether a machine was affected.

// Kill stops a machine abruptly.
func (w *World) Kill(id fleet.InstanceID) bool { return w.each(id, w.die) }

// Stop shuts a machine down from within: stopping, then stopped.
func (w *World) Stop(id fleet.InstanceID) bool { return w.each(id, w.stop) }

// Vanish removes a machine, which is reported as deleted for Config.Remember.
func (w *World) Vanish(id fleet.InstanceID) bool { return w.each(id, w.vanish) }

// Fail makes a machine fail permanently.
func (w *World) Fail(id fleet.InstanceID) bool {
	return w.each(id, func(r *row) bool {
		return w.move(r, provider.StateFailed, provider.StatePending, provider.StateRunning)
	})
}

// Readdress changes a machine's addresses; none: unknown.
func (w *World) Readdress(id fleet.InstanceID, addresses ...netip.Addr) bool {
	return w.each(id, func(r *row) bool { r.vm.Addresses = slices.Clone(addresses); return true })
}

// Rename changes a machine's names in the provider's name service.
func (w *World) Rename(id fleet.InstanceID, names ...string) bool {
	return w.each(id, func(r *row) bool { r.vm.DNSNames = slices.Clone(names); return true })
}

// Explain sets the reason of a machine's next state.
func (w *World) Explain(id fleet.InstanceID, reason string) bool {
	return w.each(id, func(r *row) bool { r.vm.Reason = reason; return true })
}

// Plant adds a machine with these tags, as another program would, in the scope of the tags.
func (w *World) Plant(tags map[string]string) provider.VM {
	w.mu.Lock()
	defer w.mu.Unlock()
	scope := provider.Scope{ClusterID: tags[provider.TagClusterID], Shard: tags[provider.TagShard]}
	if !scope.Owns(tags) {
		scope = provider.Scope{} // of no shard
	}
	return w.add(scope, provider.Spec{Tags: tags}).snapshot()
}

// VMs returns every machine in the world, of all scopes, ordered by instance ID.
func (w *World) VMs() []provider.VM {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]provider.VM, 0, len(w.byName))
	for _, r := range w.byName {
		if !r.gone {
			out = append(out, r.snapshot())
		}
	}
	provider.Sort(out)
	return out
}

// Changes returns the number of state changes of machines, including their first state. While
// it does not change, neither does VMs.
func (w *World) Changes() uint64 { return w.changes.Load() }

// Spec returns the spec a machine was created with, and whether it exists.
func (w *World) Spec(id fleet.InstanceID) (provider.Spec, bool) {
	var spec provider.Spec
	ok := w.each(id, func(r *row) bool { spec = r.spec; return true })
	return spec, ok
}

// each calls f for every machine with this instance ID.
func (w *World) each(id fleet.InstanceID, f func(*row) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	done := false
	for _, s := range w.shelves {
		for _, r := range present(s.withID(id)) {
			done = f(r) || done
		}
	}
	return done
}
