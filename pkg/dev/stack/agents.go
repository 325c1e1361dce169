package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// stopper is a provider that can end VMs so that they are listed as stopped.
type stopper interface {
	Stop(ctx context.Context, refs []provider.Ref) []error
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

// endAgents ends every agent that a stack in this folder started, and waits until they have ended.
func endAgents(ctx context.Context, cfg Config) error {
	noted, err := os.ReadFile(providerFile(cfg))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the noted provider: %w", err)
	}
	cfg.Provider = string(noted)
	var errs []error
	kept := false
	for _, s := range cfg.shards() {
		agents, err := endShard(ctx, cfg, s.id)
		if err != nil {
			errs = append(errs, fmt.Errorf("end agents of %s: %w", s.id, err))
		}
		kept = kept || agents
	}
	if err := errors.Join(errs...); err != nil || kept {
		return err
	}
	return os.Remove(providerFile(cfg))
}

// hasRecords reports whether the bucket has records of a shard's instances.
func hasRecords(cfg Config, shard string) bool {
	records, err := os.ReadDir(filepath.Join(cfg.Temp, "dev-s3", "instance", shard))
	return err == nil && len(records) > 0
}

// endShard ends a shard's agents. Processes that have a record in the bucket are stopped, and stay in their
// folders: so the next server finds that they have ended, and replaces them at once. Those that are gone
// without a trace might only not be shown, and it would wait for their agents.
func endShard(ctx context.Context, cfg Config, shard string) (kept bool, err error) {
	p, err := openProvider(cfg, shard)
	if err != nil {
		return false, err
	}
	defer p.Close()
	keeper, ok := p.(stopper)
	kept = ok && hasRecords(cfg, shard)
	for {
		vms, err := p.List(ctx)
		if err != nil {
			return false, err
		}
		alive, others := left(vms, kept)
		if len(alive)+len(others) == 0 {
			return kept, nil
		}
		errs := p.Delete(ctx, others)
		if kept {
			errs = append(errs, keeper.Stop(ctx, alive)...)
		}
		if err := errors.Join(errs...); err != nil {
			return false, err
		}
		if retry.Wait(ctx, 50*time.Millisecond) != nil {
			return false, ctx.Err()
		}
	}
}

// left returns up to a batch of the agents that are alive and to be kept as stopped ones, and of those that
// are to be deleted.
func left(vms []provider.VM, kept bool) (alive, others []provider.Ref) {
	for _, vm := range vms {
		switch {
		case !vm.State.Exists(), kept && (vm.State == provider.StateStopped || vm.State == provider.StateFailed):
		case kept && vm.State.Alive():
			alive = append(alive, vm.Ref())
		default:
			others = append(others, vm.Ref())
		}
	}
	return alive[:min(len(alive), provider.MaxBatch)], others[:min(len(others), provider.MaxBatch)]
}
