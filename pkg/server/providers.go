package server

import (
	"fmt"
	"net/netip"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
	"github.com/nstance/nstance/pkg/provider/process"
)

// Opening says what a provider is opened for.
type Opening struct {
	Scope    provider.Scope
	Provider config.Provider
	Leader   config.LeaderNetwork // the address that is to follow the leader; zero: none
	Self     string               // what the provider calls the machine that this server runs on; empty: it has to find out
}

// openedProvider is the provider of this process.
type openedProvider struct {
	provider.Provider
}

// open opens the provider that the config names.
func (p *openedProvider) open(cfg Config, shard *config.Shard) error {
	p.close() // an attempt's before
	opened, err := newProvider(cfg, Opening{
		Scope:    provider.Scope{ClusterID: shard.Cluster.ID, Shard: cfg.Shard},
		Provider: shard.Server.Provider, Leader: shard.Server.LeaderNetwork, Self: cfg.Self,
	})
	if err != nil {
		return err // what came with it may be a nil pointer, which would not look like no provider
	}
	p.Provider = opened
	return nil
}

// close lets go of what the provider holds; instances live on.
func (p *openedProvider) close() {
	if c, ok := p.Provider.(interface{ Close() }); ok {
		c.Close()
	}
	*p = openedProvider{}
}

func newProvider(cfg Config, o Opening) (provider.Provider, error) {
	if cfg.OpenProvider != nil {
		return cfg.OpenProvider(o)
	}
	switch o.Provider.Kind {
	case config.ProviderProcess:
		pc, err := process.Default(o.Scope, cfg.Logger).WithOptions(o.Provider.Options)
		if err != nil {
			return nil, fmt.Errorf("server.provider: %w", err)
		}
		return process.New(pc)
	case config.ProviderDocker:
		dc, err := docker.Default(o.Scope, cfg.Logger).WithOptions(o.Provider.Options)
		if err != nil {
			return nil, fmt.Errorf("server.provider: %w", err)
		}
		dc.Leader = o.dockerLeader()
		return docker.New(dc)
	default:
		return nil, cfg.checkProvider(config.Server{Provider: o.Provider}).Err()
	}
}

// dockerLeader is the network that the leader's address is of; nil when the config
// names none, and the address, if there is one, is moved by somebody else.
func (o Opening) dockerLeader() *docker.Leader {
	if o.Leader.InterfaceID == "" {
		return nil
	}
	addr, _ := netip.ParseAddr(o.Leader.IPv4) // one that is none is refused when the provider is made
	return &docker.Leader{Network: o.Leader.InterfaceID, IPv4: addr, Self: o.Self}
}
