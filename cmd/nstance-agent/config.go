package main

import (
	"crypto/rand"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/nstance/nstance/pkg/agent"
)

// complete adds what the environment can't tell.
func complete(c agent.Config, debugging bool, stderr io.Writer) agent.Config {
	level := slog.LevelInfo
	if debugging {
		level = slog.LevelDebug
	}
	c.Logger = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	c.Version, c.Now, c.Random, c.Entropy, c.Sample = version, time.Now, mathrand.Float64, rand.Reader, agent.Sample
	if c.Hostname == "" {
		c.Hostname, _ = os.Hostname() // empty is for the server to judge
	}
	if addrs, err := net.InterfaceAddrs(); err == nil && c.IPv4 == "" && c.IPv6 == "" {
		c.IPv4, c.IPv6 = agent.FirstAddresses(addrs)
	}
	return c
}
