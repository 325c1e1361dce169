package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// runner runs steps one after the other, or lanes of them concurrently.
type runner struct {
	name string // the command that runs the tier
	out  io.Writer
	logs string // the folder of the steps' logs
	env  []string
	// canSeclude: steps can have a network of their own, so lanes can run concurrently.
	canSeclude bool
	folder     string // of the project
	memory     memory
}

// cost is what a step used.
type cost struct {
	name string
	wall time.Duration
	cpu  time.Duration // of all processes that the step waited for
	idle float64       // share of its seconds in which nearly all of the machine's cores idled; negative: unknown
	// before says when and where the step passed with the same inputs, instead of now; empty: it ran.
	before string
	// byChance are the tests that failed and passed when they ran again.
	byChance []string
}

// grace is how long an interrupted step may take to stop.
const grace = 30 * time.Second

func (r runner) log(s step) string { return filepath.Join(r.logs, s.name+".log") }

// run runs one step, unless it has passed with the same inputs before.
func (r runner) run(ctx context.Context, s step, out io.Writer) (cost, error) {
	fmt.Fprintf(out, "\n=== %s\n", s.name)
	key := r.key(ctx, s, out)
	if before, ok := r.memory.recall(s, key); ok {
		fmt.Fprintf(out, "--- %s: %s\n", s.name, before)
		return cost{name: s.name, idle: -1, before: before}, nil
	}
	c, err := r.runNow(ctx, s, out)
	// What changed its own inputs, or beside a change of them, says nothing about either.
	if err == nil && key != "" && r.key(ctx, s, out) == key {
		said := "passed at " + time.Now().UTC().Format(time.RFC3339) + " in " + r.folder
		if len(c.byChance) > 0 {
			said += ", by chance: " + strings.Join(c.byChance, " ")
		}
		if keepErr := r.memory.keep(s, key, said); keepErr != nil {
			fmt.Fprintf(out, "the result of %s is not kept: %v\n", s.name, keepErr)
		}
	}
	return c, err
}

// key returns the key of a step in memory; empty: its result is not kept.
func (r runner) key(ctx context.Context, s step, out io.Writer) string {
	if len(s.inputs) == 0 || r.memory.dir == "" {
		return ""
	}
	key, err := r.memory.key(ctx, r.folder, s, r.env)
	if err != nil {
		fmt.Fprintf(out, "the result of %s is not kept: %v\n", s.name, err)
	}
	return key
}

// runNow runs a step, and writes its output to out and to the log.
func (r runner) runNow(ctx context.Context, s step, out io.Writer) (cost, error) {
	c := cost{name: s.name, idle: -1}
	log, err := os.Create(r.log(s))
	if err != nil {
		return c, err
	}
	defer log.Close()
	cmd := r.command(ctx, s)
	cmd.Stdout = io.MultiWriter(out, log)
	cmd.Stderr = cmd.Stdout
	watch := watchIdle()
	began := time.Now()
	err = cmd.Run()
	c.wall, c.idle = time.Since(began), watch.stop()
	if cmd.ProcessState != nil {
		c.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	fmt.Fprintf(out, "--- %s: %.0fs\n", s.name, c.wall.Seconds())
	if text, readErr := os.ReadFile(r.log(s)); readErr == nil {
		c.byChance = chances(string(text))
	}
	return c, err
}

// command returns a step's command, which gets SIGTERM when ctx ends.
func (r runner) command(ctx context.Context, s step) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.command[0], s.command[1:]...)
	cmd.Env = r.env
	if s.secluded {
		cmd = secludedCommand(ctx, s.command)
		cmd.Env = append(slices.Clip(r.env), "SECLUDED=1") // tests that need other networks skip themselves, and say so
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	if s.beside {
		ownSession(cmd)
	}
	return cmd
}

// failure returns an error that names what failed in a step, and how to repeat it.
func (r runner) failure(s step, err error) error {
	var text strings.Builder
	fmt.Fprintf(&text, "\nFAILED: step %s: %v\n", s.name, err)
	log, readErr := os.ReadFile(r.log(s))
	if readErr == nil {
		for _, f := range failures(string(log)) {
			fmt.Fprintf(&text, "  %s\n", f)
			for _, line := range messages(string(log), f) {
				fmt.Fprintf(&text, "  %s\n", line)
			}
		}
	}
	fmt.Fprintf(&text, "  log: %s\n  repeat this step: %s ONLY=%s\n  go on from it: %s FROM=%s",
		r.log(s), r.name, s.name, r.name, s.name)
	return errors.Join(errors.New(text.String()), readErr)
}
