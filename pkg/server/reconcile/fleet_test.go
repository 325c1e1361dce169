package reconcile_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// agents simulates the agent of every VM: it registers when the VM runs, keeps its stream open
// and reports, and its stream breaks when the VM dies.
type agents struct {
	s    *shard
	boot time.Duration // from running to registered

	mu      sync.Mutex
	open    map[fleet.InstanceID]bool
	mute    map[fleet.InstanceID]bool // no agent will come up on these
	muteAll bool

	muteGroup fleet.GroupKey // nor on those of this group
	late      bool           // the first report comes an interval after the stream
	group     sync.WaitGroup
}

func (a *agents) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = map[fleet.InstanceID]bool{}
}

func (a *agents) wait() { a.group.Wait() }

// start follows the VMs for a term.
func (a *agents) start(m *term) {
	ctx, cancel := context.WithCancel(a.s.t.Context())
	end := m.end
	m.end = func() { cancel(); end() }
	p := a.s.world.Open(scope, "agents")
	a.group.Go(func() { _ = p.Watch(ctx, func(e provider.Event) { a.event(ctx, m, e.VM) }) })
	for _, vm := range a.s.world.VMs() {
		a.event(ctx, m, vm)
	}
	a.group.Go(func() {
		for wait(ctx, a.s.wanted.Settings().ReportInterval) == nil {
			for _, id := range a.connected() {
				m.AgentReport(id, fleet.Report{At: time.Now()})
			}
		}
	})
}

func (a *agents) connected() []fleet.InstanceID {
	a.mu.Lock()
	defer a.mu.Unlock()
	var ids []fleet.InstanceID
	for id := range a.open {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (a *agents) event(ctx context.Context, m *term, vm provider.VM) {
	switch {
	case vm.State == provider.StateRunning:
		a.group.Go(func() { a.come(ctx, m, vm.ID) })
	case !vm.State.Alive() && !a.s.isAlive(vm.ID): // not just a twin's end
		a.drop(m, vm.ID)
	}
}

// come registers the agent, if needed, and opens the stream.
func (a *agents) come(ctx context.Context, m *term, id fleet.InstanceID) {
	a.mu.Lock()
	mute := a.muteAll || a.mute[id]
	a.mu.Unlock()
	if r, ok := m.ledger.Get(id); ok && r.GroupKey() == a.muteGroup {
		return
	}
	if mute || wait(ctx, a.boot) != nil {
		return
	}
	for r, ok := m.ledger.Get(id); !ok || r.Phase == fleet.Pending; r, ok = m.ledger.Get(id) {
		if !ok && wait(ctx, time.Second) != nil {
			return
		}
		now := time.Now()
		_, err := m.ledger.Update(ctx, id, func(i *fleet.Instance) error {
			if i.Phase == fleet.Pending {
				i.Phase, i.RegisteredAt = fleet.Running, &now
			}
			return nil
		})
		if err == nil {
			m.Registered(id)
		} else if wait(ctx, time.Second) != nil {
			return
		}
	}
	if r, ok := m.ledger.Get(id); ok && a.s.isAlive(id) && (r.Phase == fleet.Running || r.Phase == fleet.Draining) {
		a.connect(m, id)
	}
}

func (a *agents) connect(m *term, id fleet.InstanceID) {
	a.mu.Lock()
	a.open[id] = true
	a.mu.Unlock()
	m.AgentConnected(id)
	if !a.late {
		m.AgentReport(id, fleet.Report{At: time.Now()})
	}
}

func (a *agents) drop(m *term, id fleet.InstanceID) {
	a.mu.Lock()
	was := a.open[id]
	delete(a.open, id)
	a.mu.Unlock()
	if was {
		m.AgentDisconnected(id, time.Now())
	}
}
