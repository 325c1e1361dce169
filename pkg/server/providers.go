package server

import (
	"fmt"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
	"github.com/nstance/nstance/pkg/provider/process"
)

// openedProvider is a provider, and the part of it that moves the leader's address
// where it has one.
type openedProvider struct {
	provider.Provider
	network provider.LeaderNetwork // nil: no address follows the leader
}

// open opens the provider that the config names.
func (p *openedProvider) open(cfg Config, shard *config.Shard) error {
	p.close() // an attempt's before
	opened, err := newProvider(cfg, provider.Scope{ClusterID: shard.Cluster.ID, Shard: cfg.Shard}, shard.Server.Provider)
	if err != nil {
		return err
	}
	p.Provider = opened
	switch opened := opened.(type) {
	case provider.LeaderNetwork:
		p.network = opened
	case *docker.Provider:
		if n, ok := opened.LeaderNetwork(); ok {
			p.network = n
		}
	}
	return nil
}

// close lets go of what the provider holds; instances live on.
func (p *openedProvider) close() {
	if c, ok := p.Provider.(interface{ Close() }); ok {
		c.Close()
	}
	*p = openedProvider{}
}

func newProvider(cfg Config, scope provider.Scope, c config.Provider) (provider.Provider, error) {
	if cfg.OpenProvider != nil {
		return cfg.OpenProvider(scope, c)
	}
	switch c.Kind {
	case config.ProviderProcess:
		pc, err := process.Default(scope, cfg.Logger).WithOptions(c.Options)
		if err != nil {
			return nil, fmt.Errorf("server.provider: %w", err)
		}
		return process.New(pc)
	case config.ProviderDocker:
		dc, err := docker.Default(scope, cfg.Logger).WithOptions(c.Options)
		if err != nil {
			return nil, fmt.Errorf("server.provider: %w", err)
		}
		return docker.New(dc)
	default:
		return nil, checkProvider(c).Err()
	}
}

// checkProvider reports that a config names a provider that this build does not
// have.
func checkProvider(c config.Provider) config.Problems {
	if c.Kind == config.ProviderProcess || c.Kind == config.ProviderDocker {
		return nil
	}
	return config.Problems{{
		Path:    "server.provider.kind",
		Message: fmt.Sprintf("%q is not part of this build (have: %s, %s)", c.Kind, config.ProviderDocker, config.ProviderProcess),
	}}
}

// checkShard is what parsing can't know of a config.
func (c Config) checkShard(shard *config.Shard) error {
	if c.OpenProvider != nil {
		return nil
	}
	return checkProvider(shard.Server.Provider).Err()
}
