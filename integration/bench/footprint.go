package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/shirou/gopsutil/v4/process"

	"github.com/nstance/nstance/images/release"
	"github.com/nstance/nstance/pkg/retry"
)

const (
	serverBinary = "nstance-server"
	agentBinary  = "nstance-agent"
	// footprintSettle is the time for registration, streams and a few garbage collections.
	footprintSettle = 15 * time.Second
)

// measureFootprint runs the real server on a folder, with a real agent as a process, and measures
// both when they are idle.
func measureFootprint(ctx context.Context, b *bench) ([]figure, error) {
	out, err := imageSizes(ctx)
	if err != nil {
		return out, err
	}
	aws, err := b.weightOfAWS(ctx)
	if err != nil {
		return out, err
	}
	out = append(out, aws)
	agents, err := b.folder("footprint-agents")
	if err != nil {
		return out, err
	}
	server, err := b.realServer(ctx, agents)
	if err != nil {
		return out, err
	}
	defer func() {
		// It may have ended by itself, which the figures show.
		_ = server.Process.Signal(syscall.SIGTERM)
		_ = server.Wait()
		endAgents(ctx, agents)
	}()
	var agent *process.Process
	err = until(ctx, "an agent runs", 30*time.Second, func() bool {
		found := agentsIn(ctx, agents)
		if len(found) == 0 {
			return false
		}
		agent = found[0]
		return true
	})
	if err != nil {
		return out, err
	}
	if err := retry.Wait(ctx, footprintSettle); err != nil {
		return out, err
	}
	serverRSS, err := rss(ctx, server.Process.Pid)
	if err != nil {
		return out, err
	}
	agentRSS, err := rss(ctx, int(agent.Pid))
	return append(out,
		newFigure("server_rss_idle", serverRSS, "MiB", 1).atMost(40).noted("one agent, store in a folder"),
		newFigure("agent_rss_idle", agentRSS, "MiB", 1).atMost(20).noted("registered, streams open"),
	), err
}

// imageSizes builds the images of server and agent and measures the size of a pull.
func imageSizes(ctx context.Context) ([]figure, error) {
	cmd := exec.CommandContext(ctx, "make", "images", "PROGRAMS="+serverBinary+","+agentBinary)
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the images: %w: %s", err, said)
	}
	built, err := release.Load(filepath.Join("temp", "images"))
	if err != nil {
		return nil, err
	}
	targets := map[string]float64{serverBinary: 17, agentBinary: 7}
	var out []figure
	for _, image := range built.Images {
		for _, platform := range image.Platforms {
			name := strings.TrimPrefix(image.Name, "nstance-") + "_image_" + platform.Architecture
			out = append(out, newFigure(name, float64(platform.Size)/1e6, "MB", 1).atMost(targets[image.Name]).
				noted("compressed, on the base that is made here"))
		}
	}
	return out, nil
}

// realServer starts bin/nstance-server with a group of one, whose store and provider are folders.
func (b *bench) realServer(ctx context.Context, agents string) (*exec.Cmd, error) {
	store, err := b.folder("footprint-store")
	if err != nil {
		return nil, err
	}
	cache, err := b.folder("footprint-cache")
	if err != nil {
		return nil, err
	}
	if err := b.putConfig(ctx, store, agents); err != nil {
		return nil, err
	}
	addrs, err := freeEndpoints(ctx)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(b.temp, "footprint.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, serverBinary), "--shard", shardID, "--id", "bench",
		"--storage-provider", "dir", "--storage-bucket", store, "--cache-dir", cache, "--advertise-host", loopback,
		"--health-addr", addrs.Health, "--election-addr", addrs.Election, "--registration-addr", addrs.Registration,
		"--operator-addr", addrs.Operator, "--agent-addr", addrs.Agent)
	cmd.Env = append(os.Environ(), encryptionKeyEnv+"="+encryptionKey)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, cmd.Start()
}

func (b *bench) putConfig(ctx context.Context, store, agents string) error {
	s, err := openFolder(store)
	if err != nil {
		return err
	}
	objects, err := shard{Size: 1, Provider: map[string]any{
		"kind": "process", "options": map[string]any{"dir": agents, "agent": filepath.Join(b.bin, agentBinary)},
	}}.objects(nil)
	if err != nil {
		return err
	}
	return fill(ctx, s, objects)
}
