package measure

import (
	"context"
	"errors"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// Provider returns a provider whose calls are measured. It has the optional features of p.
func (c *Calls) Provider(p provider.Provider) provider.Provider { return cloud{p, c} }

type cloud struct {
	inner provider.Provider
	calls *Calls
}

var _ provider.Provider = cloud{}

// Create implements provider.Provider.
func (p cloud) Create(ctx context.Context, spec provider.Spec) (provider.VM, error) {
	began := time.Now()
	vm, err := p.inner.Create(ctx, spec)
	kind := cloudError(ctx, err)
	p.calls.called(ctx, "create", began, kind)
	p.calls.creates.Add(1, outcome(err, kind, "made"))
	return vm, err
}

// Get implements provider.Provider.
func (p cloud) Get(ctx context.Context, refs []provider.Ref) []provider.Answer {
	began := time.Now()
	all := p.inner.Get(ctx, refs)
	kind := ""
	for _, a := range all {
		if kind = cloudError(ctx, a.Err); kind != "" {
			break
		}
	}
	p.calls.called(ctx, "get", began, kind)
	return all
}

// List implements provider.Provider.
func (p cloud) List(ctx context.Context) ([]provider.VM, error) {
	began := time.Now()
	all, err := p.inner.List(ctx)
	p.calls.called(ctx, "list", began, cloudError(ctx, err))
	return all, err
}

// Delete implements provider.Provider.
func (p cloud) Delete(ctx context.Context, refs []provider.Ref) []error {
	began := time.Now()
	all, first := p.inner.Delete(ctx, refs), ""
	for _, err := range all {
		kind := cloudError(ctx, err)
		p.calls.deletes.Add(1, outcome(err, kind, "accepted"))
		if first == "" {
			first = kind
		}
	}
	p.calls.called(ctx, "delete", began, first)
	return all
}

// outcome returns the outcome of a change.
func outcome(err error, kind, good string) string {
	switch {
	case err == nil:
		return good
	case errors.Is(err, provider.ErrNotFound):
		return "not_found"
	default:
		return kind
	}
}

// ConsistentReads implements provider.ConsistentReads.
func (p cloud) ConsistentReads() bool { return provider.Consistent(p.inner) }

// Watcher returns the provider's; a watch is one long call, which is not measured.
func (p cloud) Watcher() (provider.Watcher, bool) { return provider.WatcherOf(p.inner) }

// ArgsChecker returns the provider's, which calls nothing.
func (p cloud) ArgsChecker() (provider.ArgsChecker, bool) { return provider.ArgsCheckerOf(p.inner) }

// LeaderNetwork returns the provider's, measured.
func (p cloud) LeaderNetwork() (provider.LeaderNetwork, bool) {
	inner, ok := provider.LeaderNetworkOf(p.inner)
	if !ok {
		return nil, false // a nil interface, which callers may test instead of ok
	}
	return network{inner, p.calls}, true
}

type network struct {
	inner provider.LeaderNetwork
	calls *Calls
}

// Assign implements provider.LeaderNetwork.
func (n network) Assign(ctx context.Context) error {
	began := time.Now()
	err := n.inner.Assign(ctx)
	n.calls.called(ctx, "assign_address", began, cloudError(ctx, err))
	return err
}

// Check implements provider.LeaderNetwork.
func (n network) Check(ctx context.Context) (bool, error) {
	began := time.Now()
	held, err := n.inner.Check(ctx)
	n.calls.called(ctx, "check_address", began, cloudError(ctx, err))
	return held, err
}

// SubnetCapacity returns the provider's, measured.
func (p cloud) SubnetCapacity() (provider.SubnetCapacity, bool) {
	inner, ok := provider.SubnetCapacityOf(p.inner)
	if !ok {
		return nil, false // a nil interface, which callers may test instead of ok
	}
	return capacity{inner, p.calls}, true
}

type capacity struct {
	inner provider.SubnetCapacity
	calls *Calls
}

// FreeAddresses implements provider.SubnetCapacity.
func (c capacity) FreeAddresses(ctx context.Context, subnets []string) (map[string]int, error) {
	began := time.Now()
	free, err := c.inner.FreeAddresses(ctx, subnets)
	c.calls.called(ctx, "free_addresses", began, cloudError(ctx, err))
	return free, err
}

// ImageResolver returns the provider's, measured.
func (p cloud) ImageResolver() (provider.ImageResolver, bool) {
	inner, ok := provider.ImageResolverOf(p.inner)
	if !ok {
		return nil, false // a nil interface, which callers may test instead of ok
	}
	return images{inner, p.calls}, true
}

type images struct {
	inner provider.ImageResolver
	calls *Calls
}

// ResolveImage implements provider.ImageResolver.
func (i images) ResolveImage(ctx context.Context, q provider.ImageQuery) (string, error) {
	began := time.Now()
	image, err := i.inner.ResolveImage(ctx, q)
	i.calls.called(ctx, "resolve_image", began, cloudError(ctx, err))
	return image, err
}

// InstanceTypes returns the provider's, measured.
func (p cloud) InstanceTypes() (provider.InstanceTypes, bool) {
	inner, ok := provider.InstanceTypesOf(p.inner)
	if !ok {
		return nil, false // a nil interface, which callers may test instead of ok
	}
	return types{inner, p.calls}, true
}

type types struct {
	inner provider.InstanceTypes
	calls *Calls
}

// InstanceTypes implements provider.InstanceTypes.
func (t types) InstanceTypes(ctx context.Context, names []string) (map[string]provider.InstanceType, error) {
	began := time.Now()
	all, err := t.inner.InstanceTypes(ctx, names)
	t.calls.called(ctx, "instance_types", began, cloudError(ctx, err))
	return all, err
}
