package main

import (
	"crypto/rand"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"time"

	"github.com/nstance/nstance/pkg/agent"
)

// complete adds the settings that don't come from the environment.
func complete(c agent.Config, debugging bool, stderr io.Writer) agent.Config {
	level := slog.LevelInfo
	if debugging {
		level = slog.LevelDebug
	}
	c.Logger = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	c.Version, c.Now, c.Random, c.Entropy, c.Sample = version, time.Now, mathrand.Float64, rand.Reader, agent.Sample
	return c
}
