package server

import (
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
	"github.com/nstance/nstance/pkg/provider/process"
)

// This file is what the provider has to say of a config, whether or not it was
// opened: a config is judged before it runs, and where no machine can be made.

// checkShard reports what parsing can't know of a config.
func (c Config) checkShard(shard *config.Shard) error {
	if c.OpenProvider != nil {
		return nil
	}
	return c.checkProvider(shard.Server).Err()
}

// checkProvider reports what this build, or the provider, can't do of what a config
// asks for.
func (c Config) checkProvider(s config.Server) (problems config.Problems) {
	bad := func(path, message string) { problems = append(problems, config.Problem{Path: path, Message: message}) }
	kind := s.Provider.Kind
	if _, err := c.argsChecker(s.Provider); err != nil {
		problems = fieldProblems("server.provider", err)
	}
	if s.LeaderNetwork.InterfaceID == "" {
		return problems
	}
	switch kind {
	case config.ProviderProcess:
		bad("server.leader_network.interface_id", "the provider process moves no address: remove it")
	case config.ProviderDocker:
		if s.LeaderNetwork.IPv6 != "" {
			bad("server.leader_network.ipv6", "the provider docker moves an IPv4 address only: remove it")
		}
		if s.LeaderNetwork.IPv4 == "" {
			bad("server.leader_network.ipv4", "required beside interface_id with the provider docker")
		}
	}
	return problems
}

// argsChecker is that of the provider which a config names, as it would be opened. The
// error is of what names or configures it.
func (c Config) argsChecker(p config.Provider) (provider.ArgsChecker, error) {
	switch p.Kind {
	case config.ProviderProcess:
		return process.Default(provider.Scope{}, c.Logger).WithOptions(p.Options)
	case config.ProviderDocker:
		return docker.Default(provider.Scope{}, c.Logger).WithOptions(p.Options)
	default:
		return nil, provider.FieldErrors{{
			Path:    "kind",
			Message: fmt.Sprintf("%q is not part of this build (have: %s, %s)", p.Kind, config.ProviderDocker, config.ProviderProcess),
		}}
	}
}

// checks are what the provider knows of a config that checkShard has nothing against.
// opened is what OpenProvider returned, if it stands in for the real ones and was
// called already.
func (c Config) checks(shard *config.Shard, opened provider.Provider) config.Checks {
	checker, ok := provider.ArgsChecker(nil), false
	if c.OpenProvider == nil {
		found, err := c.argsChecker(shard.Server.Provider)
		checker, ok = found, err == nil
	} else if opened != nil {
		checker, ok = provider.ArgsCheckerOf(opened)
	}
	if !ok {
		return config.Checks{}
	}
	return config.Checks{Args: func(g fleet.Group, args map[string]any) config.Problems {
		spec := provider.Spec{Arch: g.Arch, InstanceType: g.InstanceType, Args: args}
		if len(g.Subnets) > 0 {
			spec.Subnet = g.Subnets[0]
		}
		return fieldProblems("", checker.CheckArgs(spec))
	}}
}

// fieldProblems are a provider's FieldErrors as problems of a config, below a path.
func fieldProblems(path string, err error) (problems config.Problems) {
	var fields provider.FieldErrors
	if err != nil && !errors.As(err, &fields) {
		return config.Problems{{Path: path, Message: err.Error()}}
	}
	for _, f := range fields {
		if path != "" {
			f.Path = path + "." + f.Path
		}
		problems = append(problems, config.Problem{Path: f.Path, Message: f.Message})
	}
	return problems
}
