package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/shirou/gopsutil/v4/process"

	"github.com/nstance/nstance/pkg/retry"
)

// stackSettle is the time after which the stack's memory is measured.
const stackSettle = 15 * time.Second

// devStack is a development stack with Kubernetes in a folder of its own.
type devStack struct {
	b    *bench
	temp string
}

// measureStack starts the development stack with Kubernetes, which is built already, from nothing
// and then from existing data, until nodes are ready.
func measureStack(ctx context.Context, b *bench) (figures []figure, err error) {
	temp, err := b.folder("stack")
	if err != nil {
		return nil, err
	}
	s := &devStack{b, temp}
	defer func() {
		if downErr := s.dev(context.WithoutCancel(ctx), "down"); err == nil {
			err = downErr
		}
	}()
	first, err := s.up(ctx)
	if err != nil {
		return nil, err
	}
	if err := retry.Wait(ctx, stackSettle); err != nil {
		return nil, err
	}
	used, err := s.memory(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.dev(ctx, "down"); err != nil {
		return nil, err
	}
	again, err := s.up(ctx)
	return []figure{
		newFigure("stack_up", first.Seconds(), "s", 1).atMost(20).noted("built before, in an empty folder"),
		newFigure("stack_up_again", again.Seconds(), "s", 1).atMost(20).noted("with the objects of before"),
		newFigure("stack_rss", used.all, "MiB", used.count).atMost(1.2 * 1024).noted("of all processes, what they share counted in each"),
		newFigure("operator_rss_idle", used.operator, "MiB", 1).atMost(60).noted("two shards, a pool of four instances, nothing to do"),
	}, err
}

func (s *devStack) up(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	err := s.dev(ctx, "up", "--kubernetes", "--provider", "process")
	return time.Since(began), err
}

func (s *devStack) dev(ctx context.Context, args ...string) error {
	_, err := s.ask(ctx, args...)
	return err
}

func (s *devStack) ask(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.b.bin, "dev"), append(args, "--temp", s.temp, "--bin", s.b.bin)...)
	cmd.Env = append(os.Environ(), "DEV_OUTPUT=json")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("dev %s: %w: %s", args[0], err, said.Bytes())
	}
	return out, nil
}

// taken is memory in MiB.
type taken struct {
	all, operator float64
	count         int // of processes
}

// memory returns the memory of the supervisor, of all that it started, and of the agents.
func (s *devStack) memory(ctx context.Context) (taken, error) {
	out, err := s.ask(ctx, "status")
	if err != nil {
		return taken{}, err
	}
	var report struct{ Supervisor int32 }
	if err := json.Unmarshal(out, &report); err != nil {
		return taken{}, fmt.Errorf("dev status: %w", err)
	}
	supervisor, err := process.NewProcessWithContext(ctx, report.Supervisor)
	if err != nil {
		return taken{}, err
	}
	all := map[int32]*process.Process{report.Supervisor: supervisor}
	below(ctx, supervisor, all)
	for _, agent := range agentsIn(ctx, filepath.Join(s.temp, "agents")) {
		all[agent.Pid] = agent
	}
	var used taken
	for pid, p := range all {
		one, err := rss(ctx, int(pid))
		if err != nil {
			continue // it has ended meanwhile
		}
		used.all, used.count = used.all+one, used.count+1
		if name, err := p.NameWithContext(ctx); err == nil && name == "nstance-operator" {
			used.operator = one
		}
	}
	if used.operator == 0 {
		return taken{}, errors.New("no operator runs in the stack")
	}
	return used, nil
}

// below adds the descendants of a process.
func below(ctx context.Context, p *process.Process, all map[int32]*process.Process) {
	children, err := p.ChildrenWithContext(ctx)
	if err != nil {
		return // it has none, or has ended
	}
	for _, child := range children {
		if all[child.Pid] == nil {
			all[child.Pid] = child
			below(ctx, child, all)
		}
	}
}
