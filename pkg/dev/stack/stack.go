// Package stack runs the development stack on one machine: local object
// storage, two shards (and a hot standby when asked), through their servers the
// agents of the example groups, and Kubernetes with the operator when asked.
//
// One process, the supervisor, starts everything, restarts what ends by itself,
// prefixes the logs and stops it all. It must leave nothing behind, not even
// when it is killed with SIGKILL and can't clean up: a second process, the
// guard, holds the other end of a pipe, sees it close, and does the cleaning.
// Every process of the stack writes its pid to a file before it runs its
// program, so the guard finds even one that was being started at that moment;
// agents are found through their provider.
package stack

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Config says where the stack lives and what is in it.
type Config struct {
	Bin      string // folder of the binaries
	Examples string // folder of dev-1.jsonc and dev-2.jsonc
	Temp     string // folder of all state and logs
	Provider string // docker | process
	Standby  bool   // a hot standby for dev-1
	// Life is that of client certificates; 0: the server's default.
	Life time.Duration
	// Kubeconfig is the way to an API server that is to have a Node for each instance;
	// empty: none.
	Kubeconfig string
	// Kubernetes: the operator runs too. Where Kubeconfig is the stack's own, so does an
	// API server, and Cluster API's core.
	Kubernetes bool
	Repository string // whose control plane and manifests are used
	// Plane is the folder of a control plane that is built already, with dev-k8s in Bin:
	// nothing is built, and nothing is written beside the binaries. Empty: Repository's is
	// built.
	Plane string
	// Watch is a shell command that builds the binaries, to be run in Repository when a
	// file there has changed; empty: nothing is watched.
	Watch  string
	Host   string // the address agents dial
	Out    io.Writer
	Logger *slog.Logger
}

// stopGrace is how long a process may take to end before it is killed.
const stopGrace = 15 * time.Second

// Stack is the running stack.
type Stack struct {
	cfg        Config
	components []*component // in order of start
	shardCount int          // how many of them are not of Kubernetes
	mu         sync.Mutex
	ready      bool
	failure    string
	kubernetes string // how far that is; empty: it is not asked for
}

// New lays out the stack without starting anything.
func New(cfg Config) (*Stack, error) {
	for _, dir := range []string{"logs", "run", "cache", "agents", "dev-s3"} {
		if err := os.MkdirAll(filepath.Join(cfg.Temp, dir), 0o755); err != nil {
			return nil, fmt.Errorf("make the stack's folders: %w", err)
		}
	}
	s := &Stack{cfg: cfg}
	var out sync.Mutex
	all := specs(cfg)
	s.shardCount = len(all)
	for _, spec := range append(all, kubeSpecs(cfg)...) {
		w, err := newLogWriter(&out, cfg.Out, filepath.Join(cfg.Temp, "logs", spec.Name+".log"))
		if err != nil {
			return nil, err
		}
		s.components = append(s.components, &component{spec: spec, runDir: filepath.Join(cfg.Temp, "run"), out: w, log: cfg.Logger})
	}
	return s, nil
}

// Run starts everything, serves the control socket and waits; when ctx ends, or
// a client asks for it, it stops everything.
func (s *Stack) Run(ctx context.Context) error {
	unlock, err := lock(s.cfg.Temp)
	if err != nil {
		return err
	}
	defer unlock()
	// What a supervisor before this one could not clean up, with its guard.
	if err := Clean(ctx, s.cfg); err != nil {
		return err
	}
	if err := checkPorts(ctx, s.components); err != nil {
		return err
	}
	if err := noteProvider(s.cfg); err != nil {
		return err
	}
	release, err := startGuard(ctx, s.cfg)
	if err != nil {
		return err
	}
	defer release()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	closeControl, err := s.serveControl(ctx, cancel)
	if err != nil {
		return err
	}
	defer closeControl()

	watched := s.watching()
	built := s.beginKubernetes(ctx)
	err = s.bringUp(ctx)
	var kubeErr error
	var beside sync.WaitGroup
	if err == nil {
		beside.Go(func() { watched(ctx) })
		kubeErr = s.followKubernetes(ctx, built)
		<-ctx.Done()
		beside.Wait() // or it would start what is stopped
	} else if ctx.Err() == nil {
		s.fail(err)
		// Whoever waits in the background must be able to read the reason.
		s.cfg.Logger.Error("stack did not come up", slog.Any("error", err))
	}
	s.stopAll(context.WithoutCancel(ctx))
	if ctx.Err() != nil {
		return kubeErr
	}
	return err
}

// stopAll stops servers first, so that nobody replaces the agents that go next,
// then the agents, then object storage.
func (s *Stack) stopAll(ctx context.Context) {
	var servers sync.WaitGroup
	for _, c := range s.components[1:] {
		servers.Go(func() { c.stop(syscall.SIGTERM) })
	}
	servers.Wait()
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	if err := removeAgents(ctx, s.cfg); err != nil {
		s.cfg.Logger.Error("agents may be left behind", slog.Any("error", err))
	}
	s.components[0].stop(syscall.SIGTERM)
}

// component finds one by name.
func (s *Stack) component(name string) (*component, error) {
	var have []string
	for _, c := range s.components {
		if c.spec.Name == name {
			return c, nil
		}
		have = append(have, c.spec.Name)
	}
	return nil, fmt.Errorf("no component %q in the stack (have: %v)", name, have)
}

func (s *Stack) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err.Error()
}

func (s *Stack) markReady() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = true
}
