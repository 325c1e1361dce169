package fake

import (
	"context"
	"maps"

	"github.com/nstance/nstance/pkg/provider"
)

// unlimited is the number of free addresses of a subnet without a limit.
const unlimited = 1 << 20

var _ provider.SubnetCapacity = (*Provider)(nil)

// FreeAddresses implements provider.SubnetCapacity.
func (p *Provider) FreeAddresses(ctx context.Context, subnets []string) (map[string]int, error) {
	return send(ctx, p, request{op: OpCapacity, takes: p.w.cfg.AsideLatency}, func() (map[string]int, error) {
		free := make(map[string]int, len(subnets))
		for _, subnet := range subnets {
			if limit, ok := p.w.capacity[subnet]; ok {
				free[subnet] = max(0, limit-p.w.used[subnet])
			} else if p.w.capacity == nil {
				free[subnet] = unlimited
			}
		}
		return free, nil
	})
}

// SetCapacity changes the number of VMs per subnet; subnets not in capacity no longer exist.
// nil: any subnet, unlimited. Existing VMs stay.
func (w *World) SetCapacity(capacity map[string]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.capacity = maps.Clone(capacity)
}
