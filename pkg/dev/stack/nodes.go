package stack

import (
	"context"
	"log/slog"
	"sync"

	"github.com/nstance/nstance/pkg/dev/nodes"
)

// runNodes keeps a Node for each machine of the shards until ctx ends, if there is an API server.
// It lists the machines itself, and so works while the servers are down.
func (s *Stack) runNodes(ctx context.Context) {
	if s.cfg.Kubeconfig == "" {
		return
	}
	if s.cfg.ownCluster() && s.waitHealthy(ctx, s.components[s.shardCount]) != nil {
		return // ctx has ended
	}
	var all sync.WaitGroup
	defer all.Wait()
	for _, one := range s.cfg.shards() {
		p, err := openProvider(s.cfg, one.id)
		if err != nil {
			s.cfg.Logger.ErrorContext(ctx, "no nodes for the machines", slog.String("shard", one.id), slog.Any("error", err))
			continue
		}
		all.Go(func() {
			defer p.Close()
			nodes.Run(ctx, nodes.Default(s.cfg.Kubeconfig, p, scopeOf(one.id), s.cfg.Provider, s.cfg.Logger))
		})
	}
}
