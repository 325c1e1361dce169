package server

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws"
	"github.com/nstance/nstance/pkg/provider/docker"
	"github.com/nstance/nstance/pkg/provider/kubenode"
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
func (p *openedProvider) open(ctx context.Context, cfg Config, shard *config.Shard) error {
	p.close() // an attempt's before
	opened, err := newProvider(ctx, cfg, Opening{
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

func newProvider(ctx context.Context, cfg Config, o Opening) (provider.Provider, error) {
	if cfg.OpenProvider != nil {
		return cfg.OpenProvider(o)
	}
	s, err := cfg.settings(o.Scope, o.Provider)
	if err != nil {
		return nil, fmt.Errorf("server.provider: %w", err)
	}
	switch c := s.(type) {
	case process.Config:
		p, err := process.New(c)
		return o.withNodes(cfg, p, err, c.Kubeconfig) //nolint:contextcheck // it outlives the boot
	case aws.Config:
		c.Leader = o.awsLeader()
		return aws.New(ctx, c) // without Nodes: Kubernetes has a cloud provider for these
	case docker.Config:
		c.Leader = o.dockerLeader()
		p, err := docker.New(c)
		return o.withNodes(cfg, p, err, c.Kubeconfig) //nolint:contextcheck // it outlives the boot
	default:
		return nil, fmt.Errorf("server.provider.kind: nobody can open %q", o.Provider.Kind)
	}
}

// withNodes returns a provider that was opened, with Nodes if a kubeconfig says where.
func (o Opening) withNodes(cfg Config, p provider.Provider, err error, kubeconfig string) (provider.Provider, error) {
	if err != nil || kubeconfig == "" {
		return p, err
	}
	return kubenode.Wrap(p, kubenode.Default(kubeconfig, o.Scope, o.Provider.Kind, cfg.Logger)), nil
}

// awsLeader is the address that the provider moves; nil when there is none, or somebody
// else moves it.
func (o Opening) awsLeader() *aws.Leader {
	if o.Leader.InterfaceID == "" {
		return nil
	}
	l := &aws.Leader{Interface: o.Leader.InterfaceID, Self: o.Self}
	// What is no address was refused when the config was read.
	l.IPv4, _ = netip.ParseAddr(o.Leader.IPv4)
	l.IPv6, _ = netip.ParseAddr(o.Leader.IPv6)
	return l
}

// dockerLeader is the network that the leader's address is of; nil when the config
// names none, and the address, if there is one, is moved by somebody else. So it is
// with an address of IPv6 alone, which a config had that was accepted earlier.
func (o Opening) dockerLeader() *docker.Leader {
	addr, err := netip.ParseAddr(o.Leader.IPv4)
	if err != nil || o.Leader.InterfaceID == "" {
		return nil
	}
	return &docker.Leader{Network: o.Leader.InterfaceID, IPv4: addr, Self: o.Self}
}
