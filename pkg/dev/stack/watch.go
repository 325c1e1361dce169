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

// watchInterval is the interval at which the source is scanned.
const watchInterval = 500 * time.Millisecond

// startWatch takes the first scan of the source before anything runs, so that edits while the stack
// starts count too. The function that it returns rebuilds the binaries whenever their source
// changes, and restarts those that differ. Without Config.Watch it does nothing.
func (s *Stack) startWatch() (watched func(context.Context)) {
	if s.cfg.Watch == "" {
		return func(context.Context) {}
	}
	var binaries []string
	var before map[string]string
	source, err := watch.Start(watch.Config{
		Root: s.cfg.Repository, Skip: []string{s.cfg.Bin, s.cfg.Temp}, Every: watchInterval, Logger: s.cfg.Logger,
		Build: s.rebuild,
		Built: func(ctx context.Context) {
			now, err := hashFiles(binaries)
			if err == nil {
				err = s.restartChanged(ctx, changedFiles(before, now))
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
			before, err = hashFiles(binaries)
		}
		if err != nil {
			s.cfg.Logger.ErrorContext(ctx, "nothing is watched", slog.Any("error", err))
			return
		}
		source.Run(ctx)
	}
}

func (s *Stack) rebuild(ctx context.Context) error {
	if _, err := s.runTool(ctx, "/bin/sh", "-c", s.cfg.Watch); err != nil || !s.cfg.ownCluster() {
		return err
	}
	return s.buildDevK8s(ctx)
}

// binaries returns the paths of all programs that the stack runs, and of its own.
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

// restartChanged restarts the components whose binary changed, one after the other, and replaces
// the agents' program.
func (s *Stack) restartChanged(ctx context.Context, binaries []string) error {
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

// reloadAgents replaces the program of all agents by the one that was built; for containers, also
// in the image of future ones.
func reloadAgents(ctx context.Context, cfg Config) error {
	if cfg.Provider == "docker" {
		if err := buildImage(ctx, cfg); err != nil {
			return err
		}
	}
	var errs []error
	for _, s := range cfg.shards() {
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

// restart restarts the process, unless it was stopped.
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

// hashFiles returns the hashes of files by path; missing ones have none.
func hashFiles(paths []string) (map[string]string, error) {
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

// changedFiles returns the files whose hash is new, sorted.
func changedFiles(before, now map[string]string) (paths []string) {
	for _, path := range slices.Sorted(maps.Keys(now)) {
		if before[path] != now[path] {
			paths = append(paths, path)
		}
	}
	return paths
}
