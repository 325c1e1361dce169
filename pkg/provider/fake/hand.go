package fake

import (
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// The hand of fate: what happens to machines behind the provider's back. Each
// reports whether there was a machine that it happened to.

// Kill makes a machine stop dead.
func (w *World) Kill(id fleet.InstanceID) bool { return w.each(id, w.die) }

// Stop shuts a machine down from inside: stopping, then stopped.
func (w *World) Stop(id fleet.InstanceID) bool { return w.each(id, w.stop) }

// Vanish makes a machine disappear without a trace but for what Config.Remember
// keeps.
func (w *World) Vanish(id fleet.InstanceID) bool { return w.each(id, w.vanish) }

// Fail makes a machine one that will never run.
func (w *World) Fail(id fleet.InstanceID) bool {
	return w.each(id, func(r *row) bool {
		return w.move(r, provider.StateFailed, provider.StatePending, provider.StateRunning)
	})
}

// Explain says why a machine is in the state it goes to next.
func (w *World) Explain(id fleet.InstanceID, reason string) bool {
	return w.each(id, func(r *row) bool { r.vm.Reason = reason; return true })
}

// Plant puts a machine with these tags into the world, as some other program
// would, under the scope that the tags name.
func (w *World) Plant(tags map[string]string) provider.VM {
	w.mu.Lock()
	defer w.mu.Unlock()
	scope := provider.Scope{ClusterID: tags[provider.TagClusterID], Shard: tags[provider.TagShard]}
	if !scope.Owns(tags) {
		scope = provider.Scope{} // on nobody's shelf
	}
	return w.add(scope, provider.Spec{Tags: tags}).snapshot()
}

// VMs returns every machine in the world, whatever its scope, in the order of
// its instance id.
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

// Changes counts how often a machine came to another state, its first one included. What
// VMs returns is as before while the count is.
func (w *World) Changes() uint64 { return w.changes.Load() }

// Spec returns what a machine was created with, and whether there is one.
func (w *World) Spec(id fleet.InstanceID) (provider.Spec, bool) {
	var spec provider.Spec
	ok := w.each(id, func(r *row) bool { spec = r.spec; return true })
	return spec, ok
}

// each has f done to every machine with this instance id.
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
