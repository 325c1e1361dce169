package stack

import (
	"context"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
)

// agentImage is what agents run where they are containers.
const agentImage = "nstance-agent:dev"

// engineAnswers reports whether there is a container engine to use.
func engineAnswers(ctx context.Context) bool { return docker.Ping(ctx, "") == nil }

// buildImage makes the agent's image from the binary that was just built.
func buildImage(ctx context.Context, cfg Config) error {
	return docker.BuildAgentImage(ctx, "", cfg.agentBinary(), agentImage)
}

func openDocker(cfg Config, scope provider.Scope) (provider.Provider, error) {
	c, err := docker.Default(scope, cfg.Logger).WithOptions(providerOptions(cfg))
	if err != nil {
		return nil, err
	}
	return docker.New(c)
}
