package fake

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/provider"
)

var _ provider.LoadBalancer = (*Provider)(nil)

// Register implements provider.LoadBalancer.
func (p *Provider) Register(ctx context.Context, target string, vm provider.Ref) error {
	return p.balance(ctx, OpRegister, target, vm, func(members map[string]bool) error {
		rows := p.w.find(p.scope, vm)
		if len(rows) == 0 || rows[0].vm.State != provider.StateRunning {
			return fmt.Errorf("%w: no VM %.80q runs that could be registered", provider.ErrInvalid, vm.ProviderID)
		}
		members[rows[0].vm.ProviderID] = true
		return nil
	})
}

// Deregister implements provider.LoadBalancer.
func (p *Provider) Deregister(ctx context.Context, target string, vm provider.Ref) error {
	return p.balance(ctx, OpDeregister, target, vm, func(members map[string]bool) error {
		delete(members, vm.ProviderID)
		for _, r := range p.w.find(p.scope, vm) {
			delete(members, r.vm.ProviderID)
		}
		return nil
	})
}

// Targets implements provider.LoadBalancer. A gone machine stays registered, unlike in some
// clouds.
func (p *Provider) Targets(ctx context.Context, target string) ([]string, error) {
	return send(ctx, p, request{op: OpTargets, target: target, takes: p.w.cfg.AsideLatency}, func() ([]string, error) {
		members, err := p.w.members(target)
		return slices.Sorted(maps.Keys(members)), err
	})
}

// balance changes the registrations of a target.
func (p *Provider) balance(ctx context.Context, op Op, target string, vm provider.Ref, change func(map[string]bool) error) error {
	if err := vm.Check(); err != nil {
		return err
	}
	r := request{op: op, ref: vm, target: target, takes: p.w.cfg.AsideLatency, mutates: true}
	_, err := send(ctx, p, r, func() (struct{}, error) {
		members, err := p.w.members(target)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, change(members)
	})
	return err
}

// members requires the lock.
func (w *World) members(target string) (map[string]bool, error) {
	members, ok := w.targets[target]
	if !ok && !w.anyTargets {
		return nil, fmt.Errorf("%w: target %.200q", provider.ErrNotFound, target)
	}
	if !ok {
		members = map[string]bool{}
		w.targets[target] = members
	}
	return members, nil
}

// AddTarget creates a load balancer target.
func (w *World) AddTarget(target string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.targets[target] == nil {
		w.targets[target] = map[string]bool{}
	}
}

// PlantTarget registers a target behind the provider's back.
func (w *World) PlantTarget(target, providerID string) {
	w.AddTarget(target)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.targets[target][providerID] = true
}

// TargetHealth reports, for each provider ID registered with a target, whether its machine
// runs.
func (w *World) TargetHealth(target string) map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	health := map[string]bool{}
	for id := range w.targets[target] {
		r, ok := w.byName[id]
		health[id] = ok && r.vm.State == provider.StateRunning
	}
	return health
}
