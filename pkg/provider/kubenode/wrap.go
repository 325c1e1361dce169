package kubenode

import (
	"context"

	"github.com/nstance/nstance/pkg/provider"
)

// Provider is a provider whose machines have Nodes.
type Provider struct {
	provider.Provider
	keeper *keeper
}

// Wrap returns p, with a Node for each of its machines. The API server need not be
// there yet. Close ends the keeping, and closes p.
func Wrap(p provider.Provider, cfg Config) *Provider {
	return &Provider{Provider: p, keeper: start(cfg, p.List)}
}

// Close ends the keeping and closes the provider within; Nodes and machines stay.
func (p *Provider) Close() {
	p.keeper.stop()
	if c, ok := p.Provider.(interface{ Close() }); ok {
		c.Close()
	}
}

// Create implements provider.Provider.
func (p *Provider) Create(ctx context.Context, spec provider.Spec) (provider.VM, error) {
	vm, err := p.Provider.Create(ctx, spec)
	p.keeper.poke()
	return vm, err
}

// Delete implements provider.Provider.
func (p *Provider) Delete(ctx context.Context, refs []provider.Ref) []error {
	errs := p.Provider.Delete(ctx, refs)
	p.keeper.poke()
	return errs
}

// What the provider within can do besides:

// ConsistentReads implements provider.ConsistentReads.
func (p *Provider) ConsistentReads() bool { return provider.Consistent(p.Provider) }

// Watcher returns the provider's.
func (p *Provider) Watcher() (provider.Watcher, bool) { return provider.WatcherOf(p.Provider) }

// LeaderNetwork returns the provider's.
func (p *Provider) LeaderNetwork() (provider.LeaderNetwork, bool) {
	return provider.LeaderNetworkOf(p.Provider)
}

// SubnetCapacity returns the provider's.
func (p *Provider) SubnetCapacity() (provider.SubnetCapacity, bool) {
	return provider.SubnetCapacityOf(p.Provider)
}

// ImageResolver returns the provider's.
func (p *Provider) ImageResolver() (provider.ImageResolver, bool) {
	return provider.ImageResolverOf(p.Provider)
}

// LoadBalancer returns the provider's.
func (p *Provider) LoadBalancer() (provider.LoadBalancer, bool) {
	return provider.LoadBalancerOf(p.Provider)
}

// InstanceTypes returns the provider's.
func (p *Provider) InstanceTypes() (provider.InstanceTypes, bool) {
	return provider.InstanceTypesOf(p.Provider)
}

// ArgsChecker returns the provider's.
func (p *Provider) ArgsChecker() (provider.ArgsChecker, bool) {
	return provider.ArgsCheckerOf(p.Provider)
}
