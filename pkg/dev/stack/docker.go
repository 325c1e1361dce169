package stack

import (
	"context"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
)

// agentImage is the image of agents in containers.
const agentImage = "nstance-agent:dev"

// engineAvailable reports whether a container engine responds.
func engineAvailable(ctx context.Context) bool { return docker.Ping(ctx, "") == nil }

// buildImage builds the agent's image from the agent's binary.
func buildImage(ctx context.Context, cfg Config) error {
	return docker.BuildAgentImage(ctx, "", cfg.agentBinary(), agentImage)
}

func openDocker(cfg Config, scope provider.Scope) (stackProvider, error) {
	c, err := docker.Default(scope, cfg.Logger).WithOptions(providerOptions(cfg))
	if err != nil {
		return nil, err
	}
	return docker.New(c)
}
