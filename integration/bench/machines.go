package main

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
)

// vmName is the provider's name for an instance's VM. The fake provider names VMs in the order of
// their creation; VMs that are added from records must have the records' names.
func vmName(id fleet.InstanceID) string { return "vm-" + string(id) }

// machines is the fake provider as the rows need it: VMs are named after their instances, status
// calls are timed, and successful creates are reported.
type machines struct {
	world *fake.World
	inner *fake.Provider
	scope provider.Scope

	created func(provider.Spec) // after each create; may be nil

	mu     sync.Mutex
	status map[fleet.InstanceID]time.Duration // of the last Get
}

var _ provider.Provider = (*machines)(nil)

func newMachines(world *fake.World) *machines {
	scope := provider.Scope{ClusterID: clusterID, Shard: shardID}
	return &machines{world: world, inner: world.Open(scope, "bench"), scope: scope, status: map[fleet.InstanceID]time.Duration{}}
}

// plant adds the VMs of records.
func (m *machines) plant(ctx context.Context, records []fleet.Instance) error {
	for _, r := range records {
		if r.Phase == fleet.Deleted || r.Phase == fleet.Deleting {
			continue
		}
		spec := provider.Spec{ID: r.ID, Hostname: string(r.ID), Subnet: "local", Tags: m.scope.Tags(r)}
		if _, err := m.inner.Create(ctx, spec); err != nil {
			return err
		}
	}
	m.world.ForgetCalls()
	return nil
}

// Create implements provider.Provider.
func (m *machines) Create(ctx context.Context, spec provider.Spec) (provider.VM, error) {
	vm, err := m.inner.Create(ctx, spec)
	if err == nil && m.created != nil {
		m.created(spec)
	}
	return named(vm), err
}

// Get implements provider.Provider.
func (m *machines) Get(ctx context.Context, refs []provider.Ref) []provider.Answer {
	began := time.Now()
	answers := m.inner.Get(ctx, unnamed(refs))
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, ref := range refs {
		m.status[ref.ID] = time.Since(began)
		answers[n].VM = named(answers[n].VM)
	}
	return answers
}

// List implements provider.Provider.
func (m *machines) List(ctx context.Context) ([]provider.VM, error) {
	vms, err := m.inner.List(ctx)
	for n := range vms {
		vms[n] = named(vms[n])
	}
	return vms, err
}

// ConsistentReads implements provider.ConsistentReads.
func (m *machines) ConsistentReads() bool { return provider.Consistent(m.inner) }

// Delete implements provider.Provider.
func (m *machines) Delete(ctx context.Context, refs []provider.Ref) []error {
	return m.inner.Delete(ctx, unnamed(refs))
}

// statusTook returns the duration of the last status call about an instance.
func (m *machines) statusTook(id fleet.InstanceID) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status[id]
}

// unnamed replaces the names by those of the fake provider.
func unnamed(refs []provider.Ref) []provider.Ref {
	out := make([]provider.Ref, len(refs))
	for n, ref := range refs {
		out[n].ID = ref.ID
	}
	return out
}

// named returns a VM with its name here, at the address of its agent.
func named(vm provider.VM) provider.VM {
	if vm.ID != "" {
		vm.ProviderID = vmName(vm.ID)
		vm.Addresses = []netip.Addr{netip.MustParseAddr(loopback)}
	}
	return vm
}

// watchedMachines are machines whose provider sends events.
type watchedMachines struct{ *machines }

var _ provider.Watcher = watchedMachines{}

// Watch implements provider.Watcher.
func (w watchedMachines) Watch(ctx context.Context, fn func(provider.Event)) error {
	return w.inner.Watch(ctx, func(e provider.Event) { fn(provider.Event{VM: named(e.VM)}) })
}
