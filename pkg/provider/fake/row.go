package fake

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// row is one machine.
type row struct {
	vm    provider.VM
	scope provider.Scope
	spec  provider.Spec
	gone  bool      // gone, and kept only for stale reads
	past  []version // oldest first; only if reads are stale
}

func (r *row) snapshot() provider.VM {
	vm := r.vm
	vm.Tags = maps.Clone(vm.Tags)
	vm.Addresses, vm.DNSNames = slices.Clone(vm.Addresses), slices.Clone(vm.DNSNames)
	return vm
}

// shelf holds the machines of one scope, in List's order.
type shelf struct{ rows []*row }

func (w *World) shelf(scope provider.Scope) *shelf {
	s, ok := w.shelves[scope]
	if !ok {
		s = &shelf{}
		w.shelves[scope] = s
	}
	return s
}

// after returns up to limit machines (0: all) after before; zero: from the start.
func (s *shelf) after(last provider.VM, limit int) []*row {
	rows := s.rows[s.search(last):]
	if len(rows) > 0 && provider.Compare(rows[0].vm, last) == 0 {
		rows = rows[1:]
	}
	if limit > 0 {
		rows = rows[:min(limit, len(rows))]
	}
	return slices.Clone(rows)
}

// search returns the index of a VM, or where it would be inserted.
func (s *shelf) search(vm provider.VM) int {
	i, _ := slices.BinarySearchFunc(s.rows, vm, func(r *row, vm provider.VM) int { return provider.Compare(r.vm, vm) })
	return i
}

// withID returns the machines with an instance ID, including gone ones.
func (s *shelf) withID(id fleet.InstanceID) []*row {
	from := s.search(provider.VM{ID: id})
	to := from
	for to < len(s.rows) && s.rows[to].vm.ID == id {
		to++
	}
	return slices.Clone(s.rows[from:to])
}

// present drops gone machines.
func present(rows []*row) []*row {
	return slices.DeleteFunc(rows, func(r *row) bool { return r.gone })
}

// find returns the machines of a scope that ref matches, including gone ones. All methods from
// here on require the lock.
func (w *World) find(scope provider.Scope, ref provider.Ref) []*row {
	if ref.ProviderID == "" {
		return w.shelf(scope).withID(ref.ID)
	}
	r, ok := w.byName[ref.ProviderID]
	if !ok || r.scope != scope || !ref.Names(r.vm) {
		return nil
	}
	return []*row{r}
}

func (w *World) create(scope provider.Scope, spec provider.Spec) (provider.VM, error) {
	if rows := present(w.shelf(scope).withID(spec.ID)); len(rows) > 0 {
		return rows[0].snapshot(), nil
	}
	if limit, ok := w.capacity[spec.Subnet]; w.capacity != nil {
		if !ok {
			return provider.VM{}, fmt.Errorf("%w: subnet %q does not exist", provider.ErrInvalid, spec.Subnet)
		}
		if w.used[spec.Subnet] >= limit {
			return provider.VM{}, fmt.Errorf("%w: subnet %s holds %d of %d", provider.ErrSubnetFull, spec.Subnet, limit, limit)
		}
	}
	return w.add(scope, spec).snapshot(), nil
}

// add creates a machine and starts its life.
func (w *World) add(scope provider.Scope, spec provider.Spec) *row {
	w.serial++
	r := &row{scope: scope, spec: spec, vm: provider.VM{
		ID:         provider.TaggedID(spec.Tags),
		ProviderID: fmt.Sprintf("fake-%08x", w.serial),
		State:      provider.StatePending,
		Subnet:     spec.Subnet,
		Hostname:   spec.Hostname,
		Tags:       maps.Clone(spec.Tags),
		CreatedAt:  time.Now(),
	}}
	r.vm.Addresses = append(r.vm.Addresses, address(w.serial))
	s := w.shelf(scope)
	s.rows = slices.Insert(s.rows, s.search(r.vm), r)
	w.byName[r.vm.ProviderID] = r
	w.used[spec.Subnet]++
	w.notify(r)
	draw := w.dice.draw("boot", provider.Ref{ID: r.vm.ID, ProviderID: r.vm.ProviderID})
	boot, life := w.cfg.Boot.draw(draw), w.cfg.Lifetime.draw(draw)
	w.after(boot, func() {
		if w.move(r, provider.StateRunning, provider.StatePending) && life > 0 {
			w.after(life, func() { w.die(r) })
		}
	})
	return r
}

// after runs f under the lock after d; at once if d is zero.
func (w *World) after(d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		f()
	})
}

// move changes a machine's state if it is in one of the given states, and notifies the
// watchers.
func (w *World) move(r *row, to provider.State, from ...provider.State) bool {
	if !slices.Contains(from, r.vm.State) {
		return false
	}
	r.vm.State = to
	w.notify(r)
	return true
}

func (w *World) die(r *row) bool {
	return w.move(r, provider.StateStopped, provider.StatePending, provider.StateRunning, provider.StateStopping)
}

func (w *World) stop(r *row) bool {
	if !w.move(r, provider.StateStopping, provider.StatePending, provider.StateRunning) {
		return false
	}
	w.after(w.shutdown(r), func() { w.move(r, provider.StateStopped, provider.StateStopping) })
	return true
}

func (w *World) remove(r *row) {
	if w.move(r, provider.StateDeleting, provider.StatePending, provider.StateRunning,
		provider.StateStopping, provider.StateStopped, provider.StateFailed) {
		w.after(w.shutdown(r), func() { w.vanish(r) })
	}
}

func (w *World) shutdown(r *row) time.Duration {
	return w.cfg.Shutdown.draw(w.dice.draw("shutdown", r.vm.Ref()))
}

// vanish removes a machine, which is reported as deleted for Config.Remember.
func (w *World) vanish(r *row) bool {
	if r.vm.State == provider.StateDeleted {
		return false
	}
	r.vm.State = provider.StateDeleted
	w.used[r.vm.Subnet]--
	w.notify(r)
	w.after(w.cfg.Remember, func() {
		r.gone = true
		r.note(w.cfg.Lag.Max)
		w.after(w.cfg.Lag.Max, func() { // no read can show it after that
			s := w.shelf(r.scope)
			i := s.search(r.vm)
			s.rows = slices.Delete(s.rows, i, i+1)
			delete(w.byName, r.vm.ProviderID)
		})
	})
	return true
}
