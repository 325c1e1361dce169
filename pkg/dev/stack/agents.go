package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/process"
	"github.com/nstance/nstance/pkg/retry"
)

func providerOptions(cfg Config) map[string]any {
	options := map[string]any{"dir": filepath.Join(cfg.Temp, "agents"), "agent": cfg.agentBinary()}
	if cfg.Provider == "docker" {
		// The stacks of several folders can share an engine.
		options = map[string]any{"image": agentImage, "engine_scope": cfg.Temp}
		if cfg.Watch != "" {
			options["writable_root"] = true // the old program is replaced in the container
		}
	} else if exporting := agentTelemetry(os.Environ()); len(exporting) > 0 {
		options["env"] = exporting // a container has another localhost
	}
	return options
}

func scopeOf(shard string) provider.Scope { return provider.Scope{ClusterID: clusterID, Shard: shard} }

// stackProvider is what both providers of the stack implement.
type stackProvider interface {
	provider.Provider
	provider.Watcher
	Close()
}

func openProvider(cfg Config, shard string) (stackProvider, error) {
	scope := scopeOf(shard)
	if cfg.Provider == "docker" {
		return openDocker(cfg, scope)
	}
	c, err := process.Default(scope, cfg.Logger).WithOptions(providerOptions(cfg))
	if err != nil {
		return nil, err
	}
	return process.New(c)
}

// providerFile names the provider of the agents that a folder's stack may have left. It exists from
// before the first agent until after the last one, so that cleaning one folder never touches the
// containers of a stack in another.
func providerFile(cfg Config) string { return filepath.Join(cfg.Temp, "run", "provider") }

// recordProvider writes the provider file. It is called before any component starts.
func recordProvider(cfg Config) error {
	if err := os.WriteFile(providerFile(cfg), []byte(cfg.Provider), 0o644); err != nil {
		return fmt.Errorf("note the provider: %w", err)
	}
	return nil
}

// removeAgents deletes every agent that a stack in this folder started, and waits until they are
// gone.
func removeAgents(ctx context.Context, cfg Config) error {
	noted, err := os.ReadFile(providerFile(cfg))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the noted provider: %w", err)
	}
	cfg.Provider = string(noted)
	var errs []error
	for _, s := range cfg.shards() {
		if err := removeShard(ctx, cfg, s.id); err != nil {
			errs = append(errs, fmt.Errorf("remove agents of %s: %w", s.id, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.Remove(providerFile(cfg))
}

func removeShard(ctx context.Context, cfg Config, shard string) error {
	p, err := openProvider(cfg, shard)
	if err != nil {
		return err
	}
	for {
		vms, err := p.List(ctx)
		if err != nil {
			return err
		}
		var left []provider.Ref
		for _, vm := range vms {
			if vm.State.Exists() {
				left = append(left, vm.Ref())
			}
		}
		if len(left) == 0 {
			return nil
		}
		for refs := range slices.Chunk(left, provider.MaxBatch) {
			if err := errors.Join(p.Delete(ctx, refs)...); err != nil {
				return err
			}
		}
		if retry.Wait(ctx, 50*time.Millisecond) != nil {
			return ctx.Err()
		}
	}
}
