package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
	"github.com/nstance/nstance/pkg/retry"
)

// logPause is the interval at which new agents, and new lines in their files, are looked for.
const logPause = 500 * time.Millisecond

// followAgents copies the logs of all agents to the output, and to the log of the component
// "agents", until ctx ends.
func (s *Stack) followAgents(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, one := range s.cfg.shards() {
		p, err := openProvider(s.cfg, one.id)
		if err != nil {
			s.cfg.Logger.ErrorContext(ctx, "the logs of agents are not shown", slog.String("shard", one.id), slog.Any("error", err))
			continue
		}
		all.Go(func() {
			defer p.Close()
			s.followShard(ctx, one.id, p)
		})
	}
}

// followShard follows each agent of a shard from when it is first listed.
func (s *Stack) followShard(ctx context.Context, shard string, p stackProvider) {
	var all sync.WaitGroup
	defer all.Wait()
	followed := map[string]bool{}
	for retry.Wait(ctx, logPause) == nil {
		vms, err := p.List(ctx)
		if err != nil {
			continue // the shard's server reports it
		}
		for _, vm := range vms {
			id := string(vm.ID)
			if followed[id] || !vm.State.Exists() {
				continue
			}
			followed[id] = true
			all.Go(func() {
				out := &lineWriter{name: id, out: s.agentLog}
				if err := copyLog(ctx, s.cfg, shard, p, vm, out); err != nil && ctx.Err() == nil {
					s.cfg.Logger.WarnContext(ctx, "the log of an agent ended early", slog.String("instance", id), slog.Any("error", err))
				}
			})
		}
	}
}

// copyLog copies the log of an agent until it is gone or ctx ends.
func copyLog(ctx context.Context, cfg Config, shard string, p stackProvider, vm provider.VM, out io.Writer) error {
	if engine, ok := p.(*docker.Provider); ok {
		return engine.Logs(ctx, vm, out)
	}
	return followFile(ctx, filepath.Join(cfg.Temp, "agents", shard, string(vm.ID), "agent.log"), out)
}

// followFile copies a file that grows, until it is removed or ctx ends.
func followFile(ctx context.Context, path string, out io.Writer) error {
	f, err := os.Open(path)
	for errors.Is(err, fs.ErrNotExist) && retry.Wait(ctx, logPause) == nil {
		if _, gone := os.Stat(filepath.Dir(path)); gone != nil {
			return nil
		}
		f, err = os.Open(path)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		if _, err := io.Copy(out, f); err != nil {
			return err
		}
		if _, err := os.Stat(path); err != nil {
			return nil
		}
		if retry.Wait(ctx, logPause) != nil {
			return nil
		}
	}
}

// lineWriter passes on whole lines, each with the agent's name.
type lineWriter struct {
	name string
	out  io.Writer
	rest []byte
}

func (w *lineWriter) Write(text []byte) (int, error) {
	w.rest = append(w.rest, text...)
	for {
		line, rest, found := bytes.Cut(w.rest, []byte("\n"))
		if !found {
			return len(text), nil
		}
		if _, err := fmt.Fprintf(w.out, "%s | %s\n", w.name, line); err != nil {
			return 0, err
		}
		w.rest = bytes.Clone(rest)
	}
}
