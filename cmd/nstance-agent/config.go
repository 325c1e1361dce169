package main

import (
	"crypto/rand"
	"log/slog"
	mathrand "math/rand/v2"
	"time"

	"github.com/nstance/nstance/pkg/agent"
)

// complete adds the settings that don't come from the environment.
func complete(c agent.Config, logger *slog.Logger) agent.Config {
	c.Logger, c.Version, c.Now, c.Random, c.Entropy, c.Sample = logger, version, time.Now, mathrand.Float64, rand.Reader, agent.Sample
	return c
}
