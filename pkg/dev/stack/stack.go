// Package stack runs the development stack on one machine: local object storage, two shards (and
// optionally a hot standby), through their servers the agents of the example groups, and optionally
// Kubernetes with the operator.
//
// One process, the supervisor, starts everything, restarts processes that end, prefixes the logs
// and stops it all. Nothing may be left behind, even if the supervisor is killed with SIGKILL: a
// second process, the guard, holds the other end of a pipe, sees it close, and cleans up. Every
// process of the stack writes its pid to a file before it runs its program, so the guard finds even
// one that was just being started; agents are found through their provider.
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

// Config is the configuration of a Stack.
type Config struct {
	Bin      string // folder of the binaries
	Examples string // folder of dev-1.jsonc and dev-2.jsonc
	Temp     string // folder of all data and logs
	Provider string // docker | process
	Standby  bool   // add a hot standby to dev-1
	// PortOffset is added to all ports, so that several stacks can run on one machine.
	PortOffset int
	// Life is the lifetime of client certificates; 0: the server's default.
	Life time.Duration
	// Kubeconfig is that of the API server which gets a Node for each instance; empty: none.
	Kubeconfig string
	// Kubernetes adds the operator, and, if Kubeconfig is the stack's own, an API server and
	// Cluster API.
	Kubernetes bool
	Repository string // the source of the control plane and the manifests
	// Plane is the folder of a control plane that is built already, with dev-k8s in Bin: nothing is
	// built, and nothing is written beside the binaries. Empty: it is built from Repository.
	Plane string
	// Watch is a shell command that builds the binaries, run in Repository when a file there
	// changes; empty: changes are not watched.
	Watch  string
	Host   string // the address that agents dial
	Out    io.Writer
	Logger *slog.Logger

	storeKey string // the secret key of the object storage: see withKey
}

// stopGrace is how long a process may take to end before it is killed.
const stopGrace = 15 * time.Second

// Stack is the running stack.
type Stack struct {
	cfg        Config
	components []*component // in order of start
	agentLog   io.Writer
	shardCount int // number of components without those of Kubernetes
	mu         sync.Mutex
	ready      bool
	failure    string
	kubernetes string // Report.Kubernetes
	short      []string
}

// New creates the stack's folders without starting anything.
func New(cfg Config) (*Stack, error) {
	for _, dir := range []string{"logs", "run", "cache", "agents", "dev-s3"} {
		if err := os.MkdirAll(filepath.Join(cfg.Temp, dir), 0o755); err != nil {
			return nil, fmt.Errorf("make the stack's folders: %w", err)
		}
	}
	cfg, err := cfg.withKey()
	if err != nil {
		return nil, err
	}
	var out sync.Mutex
	agents, err := newLogWriter(&out, cfg.Out, filepath.Join(cfg.Temp, "logs", "agents.log"))
	if err != nil {
		return nil, err
	}
	s := &Stack{cfg: cfg, agentLog: agents}
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

// Run starts everything, serves the control socket and waits; when ctx ends, or a client asks for
// it, it stops everything.
func (s *Stack) Run(ctx context.Context) error {
	unlock, err := lock(s.cfg.Temp)
	if err != nil {
		return err
	}
	defer unlock()
	// Leftovers of an earlier supervisor whose guard did not clean up either.
	if err := Clean(ctx, s.cfg); err != nil {
		return err
	}
	if err := checkPorts(ctx, s.cfg, s.components); err != nil {
		return err
	}
	if err := recordProvider(s.cfg); err != nil {
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

	var logs sync.WaitGroup
	logs.Go(func() { s.followAgents(ctx) })
	defer func() { cancel(); logs.Wait() }()

	watched := s.startWatch()
	built := s.startKubernetes(ctx)
	err = s.bringUp(ctx)
	var kubeErr error
	var beside sync.WaitGroup
	if err == nil {
		beside.Go(func() { watched(ctx) })
		beside.Go(func() { s.runNodes(ctx) })
		kubeErr = s.runKubernetes(ctx, built)
		<-ctx.Done()
		beside.Wait() // otherwise they would restart what is stopped
	} else if ctx.Err() == nil {
		s.setFailure(err)
		// A command that waits for the stack in the background has to be able to read the reason.
		s.cfg.Logger.Error("stack did not come up", slog.Any("error", err))
	}
	s.stopAll(context.WithoutCancel(ctx))
	if ctx.Err() != nil {
		return kubeErr
	}
	return err
}

// stopAll stops the servers first, so that none replaces the agents that are ended next, then the
// agents, then object storage.
func (s *Stack) stopAll(ctx context.Context) {
	var servers sync.WaitGroup
	for _, c := range s.components[1:] {
		servers.Go(func() { c.stop(syscall.SIGTERM) })
	}
	servers.Wait()
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	if err := endAgents(ctx, s.cfg); err != nil {
		s.cfg.Logger.Error("agents may be left behind", slog.Any("error", err))
	}
	s.components[0].stop(syscall.SIGTERM)
}

// component finds a component by name.
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

func (s *Stack) setFailure(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err.Error()
}

func (s *Stack) markReady(short []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready, s.short = true, short
}
