package fake

import (
	"context"

	"github.com/nstance/nstance/pkg/provider"
)

var _ provider.InstanceTypes = (*Provider)(nil)

// InstanceTypes implements provider.InstanceTypes.
func (p *Provider) InstanceTypes(ctx context.Context, names []string) (map[string]provider.InstanceType, error) {
	return send(ctx, p, request{op: OpInstanceTypes, takes: p.w.cfg.AsideLatency}, func() (map[string]provider.InstanceType, error) {
		found := make(map[string]provider.InstanceType, len(names))
		for _, name := range names {
			if facts, ok := p.w.cfg.InstanceTypes[name]; ok {
				found[name] = facts
			}
		}
		return found, nil
	})
}
