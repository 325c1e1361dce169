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

// This file checks configs with the provider's rules, without opening the provider: a config is
// checked before it runs, and also where no machine can be created.

// settings are a provider's settings, with which it may be opened.
type settings interface {
	provider.ArgsChecker
	// CheckOptions returns FieldErrors for options that the provider can't be opened with.
	CheckOptions() error
}

// settings returns the settings of the provider in a config, or an error if this build does not
// support it.
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

// checkShard checks a new or accepted config for what parsing can't know: whether this build
// supports it.
func (c Config) checkShard(shard *config.Shard) error {
	if c.OpenProvider != nil {
		return nil
	}
	_, err := c.settings(provider.Scope{}, shard.Server.Provider)
	return fieldProblems("server.provider", err).Err()
}

// checks returns the provider's checks of a config that passed checkShard. They apply to new
// configs only: one that was accepted before stays valid. opened is the result of
// OpenProvider, if it replaces the real providers and was already called.
func (c Config) checks(shard *config.Shard, opened provider.Provider) config.Checks {
	if c.OpenProvider == nil {
		s, err := c.settings(provider.Scope{}, shard.Server.Provider)
		if err != nil {
			return config.Checks{}
		}
		return config.Checks{Machine: machineCheck(s), Server: func(server config.Server) config.Problems {
			return append(fieldProblems("server.provider", s.CheckOptions()), leaderNetworkProblems(server)...)
		}}
	}
	if opened != nil {
		if checker, ok := provider.ArgsCheckerOf(opened); ok {
			return config.Checks{Machine: machineCheck(checker)}
		}
	}
	return config.Checks{}
}

func machineCheck(checker provider.ArgsChecker) func(fleet.Group, map[string]any, []byte) config.Problems {
	return func(g fleet.Group, args map[string]any, userdata []byte) config.Problems {
		spec := provider.Spec{Arch: g.Arch, InstanceType: g.InstanceType, Args: args, Userdata: userdata}
		if len(g.Subnets) > 0 {
			spec.Subnet = g.Subnets[0]
		}
		return fieldProblems("", checker.CheckArgs(spec))
	}
}

// leaderNetworkProblems reports a leader's address that the provider can't move.
func leaderNetworkProblems(s config.Server) (problems config.Problems) {
	bad := func(field, message string) {
		problems = append(problems, config.Problem{Path: "server.leader_network." + field, Message: message})
	}
	n, kind := s.LeaderNetwork, s.Provider.Kind
	if kind == config.ProviderAWS {
		return fieldProblems("server", Opening{Leader: n}.awsLeader().Check())
	}
	if n.InterfaceID != "" && kind == config.ProviderProcess {
		bad("interface_id", "the provider process can't move addresses: remove it")
	}
	if n.InterfaceID == "" || kind != config.ProviderDocker {
		return problems
	}
	if n.IPv6 != "" {
		bad("ipv6", "the provider docker can only move an IPv4 address: remove it")
	}
	if n.IPv4 == "" {
		bad("ipv4", "required with interface_id by the provider docker")
	}
	return problems
}

// fieldProblems converts a provider's FieldErrors to config problems below a path.
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
