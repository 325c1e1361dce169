package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws"
	"github.com/nstance/nstance/pkg/provider/docker"
	"github.com/nstance/nstance/pkg/provider/process"
	"github.com/nstance/nstance/pkg/server/measure"
)

// Opening is what a provider is opened with.
type Opening struct {
	Scope    provider.Scope
	Provider config.Provider
	Leader   config.LeaderNetwork // the address that follows the leader; zero: none
	Self     string               // the provider's ID of this server's machine; empty: detected
}

// openedProvider is the provider of this process.
type openedProvider struct {
	provider.Provider // measured
	inner             provider.Provider
	calls             *measure.Calls
}

// open opens the provider that the config names.
func (p *openedProvider) open(ctx context.Context, cfg Config, shard *config.Shard) error {
	p.close() // from an earlier attempt
	opened, err := newProvider(ctx, cfg, Opening{
		Scope:    provider.Scope{ClusterID: shard.Cluster.ID, Shard: cfg.Shard},
		Provider: shard.Server.Provider, Leader: shard.Server.LeaderNetwork, Self: cfg.Self,
	})
	if err != nil {
		return err // opened may be a typed nil pointer
	}
	p.inner, p.Provider = opened, p.calls.Provider(opened)
	return nil
}

// close releases the provider's resources; instances keep running.
func (p *openedProvider) close() {
	if c, ok := p.inner.(interface{ Close() }); ok {
		c.Close()
	}
	p.Provider, p.inner = nil, nil
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
		if err == nil && c.UserRange == "" {
			cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "agents run as the server's own user",
				slog.String("means", "they can read what the server can, and end it"),
				slog.String("instead", "server.provider.options.user_range, which a server that is root can give"))
		}
		return p, err
	case aws.Config:
		c.Leader = o.awsLeader()
		if c.Getenv = cfg.Getenv; cfg.InsecureStorage {
			c.Getenv = awsclient.WithInsecure(cfg.Getenv)
		}
		return aws.New(ctx, c)
	case docker.Config:
		c.Leader = o.dockerLeader()
		return docker.New(c)
	default:
		return nil, fmt.Errorf("server.provider.kind: unsupported provider kind %q", o.Provider.Kind)
	}
}

// awsLeader returns the address that the provider moves; nil if there is none, or another
// program moves it.
func (o Opening) awsLeader() *aws.Leader {
	if o.Leader.InterfaceID == "" {
		return nil
	}
	l := &aws.Leader{Interface: o.Leader.InterfaceID, Self: o.Self}
	// Invalid addresses were refused when the config was read.
	l.IPv4, _ = netip.ParseAddr(o.Leader.IPv4)
	l.IPv6, _ = netip.ParseAddr(o.Leader.IPv6)
	return l
}

// dockerLeader returns the network of the leader's address; nil if the config names none, and
// the address, if there is one, is moved by something else. It is also nil for an IPv6 address
// alone, which an earlier accepted config may have.
func (o Opening) dockerLeader() *docker.Leader {
	addr, err := netip.ParseAddr(o.Leader.IPv4)
	if err != nil || o.Leader.InterfaceID == "" {
		return nil
	}
	return &docker.Leader{Network: o.Leader.InterfaceID, IPv4: addr, Self: o.Self}
}
