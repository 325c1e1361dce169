package server

import (
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws"
	"github.com/nstance/nstance/pkg/provider/docker"
	"github.com/nstance/nstance/pkg/provider/process"
)

// This file is what the provider has to say of a config, whether or not it was
// opened: a config is judged before it runs, and where no machine can be made.

// settings are those of a provider, with which it may be opened.
type settings interface {
	provider.ArgsChecker
	// CheckOptions reports, as FieldErrors, options that it could not be opened with.
	CheckOptions() error
}

// settings returns those of the provider that a config names. The error is of what
// this build does not know.
func (c Config) settings(scope provider.Scope, p config.Provider) (settings, error) {
	switch p.Kind {
	case config.ProviderAWS:
		cfg := aws.Default(scope, c.Logger)
		cfg.Region = p.Region
		return cfg.WithOptions(p.Options)
	case config.ProviderProcess:
		return process.Default(scope, c.Logger).WithOptions(p.Options)
	case config.ProviderDocker:
		return docker.Default(scope, c.Logger).WithOptions(p.Options)
	default:
		return nil, provider.FieldErrors{{
			Path: "kind",
			Message: fmt.Sprintf("%q is not part of this build (have: %s, %s, %s)", p.Kind,
				config.ProviderAWS, config.ProviderDocker, config.ProviderProcess),
		}}
	}
}

// checkShard reports what parsing can't know of a config, be it new or one that was
// accepted before: what this build does not know.
func (c Config) checkShard(shard *config.Shard) error {
	if c.OpenProvider != nil {
		return nil
	}
	_, err := c.settings(provider.Scope{}, shard.Server.Provider)
	return fieldProblems("server.provider", err).Err()
}

// checks are what the provider knows of a config that checkShard has nothing against.
// They are of new texts only: one that was accepted before they were made runs on.
// opened is what OpenProvider returned, if it stands in for the real ones and was
// called already.
func (c Config) checks(shard *config.Shard, opened provider.Provider) config.Checks {
	if c.OpenProvider == nil {
		s, err := c.settings(provider.Scope{}, shard.Server.Provider)
		if err != nil {
			return config.Checks{}
		}
		return config.Checks{Args: argsCheck(s), Server: func(server config.Server) config.Problems {
			return append(fieldProblems("server.provider", s.CheckOptions()), leaderNetworkProblems(server)...)
		}}
	}
	if opened != nil {
		if checker, ok := provider.ArgsCheckerOf(opened); ok {
			return config.Checks{Args: argsCheck(checker)}
		}
	}
	return config.Checks{}
}

func argsCheck(checker provider.ArgsChecker) func(fleet.Group, map[string]any) config.Problems {
	return func(g fleet.Group, args map[string]any) config.Problems {
		spec := provider.Spec{Arch: g.Arch, InstanceType: g.InstanceType, Args: args}
		if len(g.Subnets) > 0 {
			spec.Subnet = g.Subnets[0]
		}
		return fieldProblems("", checker.CheckArgs(spec))
	}
}

// leaderNetworkProblems are of a leader's address that the provider can't move.
func leaderNetworkProblems(s config.Server) (problems config.Problems) {
	bad := func(field, message string) {
		problems = append(problems, config.Problem{Path: "server.leader_network." + field, Message: message})
	}
	n, kind := s.LeaderNetwork, s.Provider.Kind
	if kind == config.ProviderAWS {
		return fieldProblems("server", Opening{Leader: n}.awsLeader().Check())
	}
	if n.InterfaceID != "" && kind == config.ProviderProcess {
		bad("interface_id", "the provider process moves no address: remove it")
	}
	if n.InterfaceID == "" || kind != config.ProviderDocker {
		return problems
	}
	if n.IPv6 != "" {
		bad("ipv6", "the provider docker moves an IPv4 address only: remove it")
	}
	if n.IPv4 == "" {
		bad("ipv4", "required beside interface_id with the provider docker")
	}
	return problems
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
