package server

import (
	"context"
	"fmt"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
	"github.com/nstance/nstance/pkg/provider/process"
)

func (s *Server) scope() provider.Scope {
	return provider.Scope{ClusterID: s.boot.Cluster.ID, Shard: s.cfg.Shard}
}

// closeProvider lets go of what the provider holds; instances live on.
func (s *Server) closeProvider() {
	if c, ok := s.provider.(interface{ Close() }); ok {
		c.Close()
	}
	s.provider = nil
}

// openProvider opens the provider that the config names, and the part of it
// that moves the leader's address where it has one.
func (s *Server) openProvider(context.Context) error {
	s.closeProvider() // an attempt's before
	s.network = nil
	opened, err := s.newProvider()
	if err != nil {
		return err
	}
	s.provider = opened
	switch p := s.provider.(type) {
	case provider.LeaderNetwork:
		s.network = p
	case *docker.Provider:
		if n, ok := p.LeaderNetwork(); ok {
			s.network = n
		}
	}
	return nil
}

func (s *Server) newProvider() (provider.Provider, error) {
	c := s.boot.Server.Provider
	if s.cfg.OpenProvider != nil {
		return s.cfg.OpenProvider(s.scope(), c)
	}
	switch c.Kind {
	case config.ProviderProcess:
		pc, err := process.Default(s.scope(), s.cfg.Logger).WithOptions(c.Options)
		if err != nil {
			return nil, fmt.Errorf("server.provider: %w", err)
		}
		return process.New(pc)
	case config.ProviderDocker:
		dc, err := docker.Default(s.scope(), s.cfg.Logger).WithOptions(c.Options)
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

// checkConfig is what parsing can't know of a config.
func (s *Server) checkConfig(c *config.Shard) error {
	if s.cfg.OpenProvider != nil {
		return nil
	}
	return checkProvider(c.Server.Provider).Err()
}
