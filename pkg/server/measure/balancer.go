package measure

import (
	"context"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// LoadBalancer returns the provider's, measured.
func (p cloud) LoadBalancer() (provider.LoadBalancer, bool) {
	inner, ok := provider.LoadBalancerOf(p.inner)
	if !ok {
		return nil, false // a nil interface, which callers may test instead of ok
	}
	return balancer{inner, p.calls}, true
}

type balancer struct {
	inner provider.LoadBalancer
	calls *Calls
}

// Register implements provider.LoadBalancer.
func (b balancer) Register(ctx context.Context, target string, vm provider.Ref) error {
	began := time.Now()
	err := b.inner.Register(ctx, target, vm)
	b.calls.called(ctx, "register_target", began, cloudError(ctx, err))
	return err
}

// Deregister implements provider.LoadBalancer.
func (b balancer) Deregister(ctx context.Context, target string, vm provider.Ref) error {
	began := time.Now()
	err := b.inner.Deregister(ctx, target, vm)
	b.calls.called(ctx, "deregister_target", began, cloudError(ctx, err))
	return err
}

// Targets implements provider.LoadBalancer.
func (b balancer) Targets(ctx context.Context, target string) ([]string, error) {
	began := time.Now()
	ids, err := b.inner.Targets(ctx, target)
	b.calls.called(ctx, "list_targets", began, cloudError(ctx, err))
	return ids, err
}
