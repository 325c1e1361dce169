package stack

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The ports of a server, relative to its first.
const (
	healthPort = iota
	electionPort
	registrationPort
	operatorPort
	agentPort
	_ // dev-aws has 8995
	metricsPort
)

// shards returns the shards of the stack.
func (c Config) shards() []shard {
	return []shard{{"dev-1", "dev-1", c.port(8990)}, {"dev-2", "dev-2", c.port(9000)}}
}

// standby returns the second server of the shard that has one.
func (c Config) standby() shard { return shard{"standby", standbyOf, c.port(9010)} }

// servers returns all servers of one shard.
func (c Config) servers(of shard) []shard {
	if c.Standby && of.id == standbyOf {
		return []shard{of, c.standby()}
	}
	return []shard{of}
}

// shard is one server of a shard.
type shard struct {
	component string
	id        string
	port      int // its first
}

func (s shard) addr(port int) string { return loopback(s.port + port) }

func serverSpec(cfg Config, s shard) Spec {
	bind := func(port int) string { return net.JoinHostPort("0.0.0.0", strconv.Itoa(s.port+port)) }
	args := []string{
		"--shard", s.id, "--id", s.component,
		"--storage-provider", "s3", "--storage-bucket", bucket,
		"--cache-dir", filepath.Join(cfg.Temp, "cache", s.component),
		"--advertise-host", cfg.Host,
		"--health-addr", bind(healthPort), "--election-addr", bind(electionPort), "--registration-addr", bind(registrationPort),
		"--operator-addr", bind(operatorPort), "--agent-addr", bind(agentPort),
		"--metrics-addr", s.addr(metricsPort),
	}
	if cfg.Standby && s.id == standbyOf {
		// No leader address moves here, so agents get the addresses of both servers.
		args = append(args, "--instance-registration-addrs", cfg.ofBoth(registrationPort), "--instance-agent-addrs", cfg.ofBoth(agentPort))
	}
	if cfg.Life > 0 {
		args = append(args, "--client-certificate-life", cfg.Life.String())
	}
	return Spec{
		Name:   s.component,
		Path:   filepath.Join(cfg.Bin, "nstance-server"),
		Args:   args,
		Env:    append(cfg.environment(), telemetry(os.Environ())...),
		Health: "http://" + s.addr(healthPort) + "/health",
	}
}

// addrs returns the addresses of one port of a shard's servers.
func (c Config) addrs(of shard, port int, separator string) string {
	var all []string
	for _, s := range c.servers(of) {
		all = append(all, s.addr(port))
	}
	return strings.Join(all, separator)
}

// ofBoth returns a port of the shard with a standby and of that standby, as a list for agents.
func (c Config) ofBoth(port int) string {
	return fmt.Sprintf(":%d,:%d", c.shards()[0].port+port, c.standby().port+port)
}
