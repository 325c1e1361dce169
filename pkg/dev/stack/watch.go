package stack

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/nstance/nstance/pkg/dev/watch"
	"github.com/nstance/nstance/pkg/provider/docker"
	"github.com/nstance/nstance/pkg/provider/process"
)

// watchEvery is from one look at the source to the next.
const watchEvery = 500 * time.Millisecond

// watching begins to watch the source, before anything runs: what is edited while the
// stack comes up counts. What it returns has the binaries be built anew whenever their
// source changes, and what runs of those that then differ be started again. Nothing is
// watched unless that is asked for.
func (s *Stack) watching() (watched func(context.Context)) {
	if s.cfg.Watch == "" {
		return func(context.Context) {}
	}
	var binaries []string
	var before map[string]string
	source, err := watch.Begin(watch.Config{
		Root: s.cfg.Repository, Skip: []string{s.cfg.Bin, s.cfg.Temp}, Every: watchEvery, Logger: s.cfg.Logger,
		Build: s.rebuild,
		Built: func(ctx context.Context) {
			now, err := sums(binaries)
			if err == nil {
				err = s.renew(ctx, changed(before, now))
				before = now
			}
			if err != nil {
				s.cfg.Logger.ErrorContext(ctx, "what was built anew does not run everywhere", slog.Any("error", err))
			}
		},
	})
	return func(ctx context.Context) {
		if err == nil {
			binaries = s.binaries()
			before, err = sums(binaries)
		}
		if err != nil {
			s.cfg.Logger.ErrorContext(ctx, "nothing is watched", slog.Any("error", err))
			return
		}
		source.Run(ctx)
	}
}

func (s *Stack) rebuild(ctx context.Context) error {
	if _, err := s.tool(ctx, "/bin/sh", "-c", s.cfg.Watch); err != nil || !s.cfg.ownCluster() {
		return err
	}
	return s.buildDevK8s(ctx)
}

// binaries are the paths of all that the stack runs, and of the stack's own program.
func (s *Stack) binaries() []string {
	all := []string{s.cfg.agentBinary(), s.cfg.ownBinary()}
	for _, c := range s.components {
		all = append(all, c.spec.Path)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (c Config) agentBinary() string { return filepath.Join(c.Bin, "nstance-agent") }

func (c Config) ownBinary() string { return filepath.Join(c.Bin, "dev") }

// renew starts again what runs a binary that changed, each once the one before it is
// healthy, and has agents become the new program.
func (s *Stack) renew(ctx context.Context, binaries []string) error {
	var errs []error
	for _, c := range s.components {
		if !slices.Contains(binaries, c.spec.Path) || !c.restart(ctx) {
			continue
		}
		s.cfg.Logger.InfoContext(ctx, "started again", slog.String("component", c.spec.Name))
		limited, cancel := context.WithTimeout(ctx, upTimeout)
		errs = append(errs, s.waitHealthy(limited, c))
		cancel()
	}
	if slices.Contains(binaries, s.cfg.agentBinary()) {
		err := reloadAgents(ctx, s.cfg)
		if err == nil {
			s.cfg.Logger.InfoContext(ctx, "agents have the new program")
		}
		errs = append(errs, err)
	}
	if slices.Contains(binaries, s.cfg.ownBinary()) {
		s.cfg.Logger.WarnContext(ctx, "the stack's own program changed too: for that, stop the stack and start it")
	}
	return errors.Join(errs...)
}

// reloadAgents has all agents become the program that was built. Those that are
// containers get it first, and so do those to come.
func reloadAgents(ctx context.Context, cfg Config) error {
	if cfg.Provider == "docker" {
		if err := buildImage(ctx, cfg); err != nil {
			return err
		}
	}
	var errs []error
	for _, s := range shards() {
		p, err := openProvider(cfg, s.id)
		if err != nil {
			return err
		}
		switch p := p.(type) {
		case *docker.Provider:
			err = p.Reload(ctx, cfg.agentBinary())
			p.Close()
		case *process.Provider:
			err = p.Reload(ctx)
			p.Close()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// restart ends the process and starts the next, unless none is wanted.
func (c *component) restart(ctx context.Context) bool {
	c.mu.Lock()
	wanted := c.wanted
	c.mu.Unlock()
	if !wanted {
		return false
	}
	c.stop(syscall.SIGTERM)
	if err := c.start(ctx); err != nil {
		c.log.ErrorContext(ctx, "can't be started again", slog.String("component", c.spec.Name), slog.Any("error", err))
		return false
	}
	return true
}

// sums are the hashes of files; one that is not there has none.
func sums(paths []string) (map[string]string, error) {
	all := map[string]string{}
	for _, path := range paths {
		file, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		hash := sha256.New()
		_, err = io.Copy(hash, file)
		_ = file.Close() // it was only read
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		all[path] = string(hash.Sum(nil))
	}
	return all, nil
}

// changed are the files that now are there with another hash, sorted.
func changed(before, now map[string]string) (paths []string) {
	for _, path := range slices.Sorted(maps.Keys(now)) {
		if before[path] != now[path] {
			paths = append(paths, path)
		}
	}
	return paths
}
