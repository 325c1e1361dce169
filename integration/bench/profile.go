package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
)

// topLines is how many lines of a profile are printed.
const topLines = 15

// profiler profiles one process: its CPU time from start to stop, and its heap at stop.
type profiler struct {
	cpu  *os.File
	heap string
}

func startProfiler(dir, name string) (*profiler, error) {
	cpu, err := os.Create(filepath.Join(dir, name+".cpu.prof"))
	if err != nil {
		return nil, fmt.Errorf("profile %s: %w", name, err)
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		cpu.Close()
		return nil, fmt.Errorf("profile %s: %w", name, err)
	}
	return &profiler{cpu: cpu, heap: filepath.Join(dir, name+".heap.prof")}, nil
}

func (p *profiler) stop() error {
	pprof.StopCPUProfile()
	if err := p.cpu.Close(); err != nil {
		return fmt.Errorf("write CPU profile: %w", err)
	}
	f, err := os.Create(p.heap)
	if err != nil {
		return fmt.Errorf("write heap profile: %w", err)
	}
	defer f.Close()
	runtime.GC() // a heap profile is as of the last collection
	if err := pprof.WriteHeapProfile(f); err != nil {
		return fmt.Errorf("write heap profile: %w", err)
	}
	return f.Close()
}

// profiled measures inside this process and keeps the profiles if a figure missed its target.
func (b *bench) profiled(ctx context.Context, name string, measure func() ([]figure, error)) ([]figure, error) {
	p, err := startProfiler(b.temp, name)
	if err != nil {
		return nil, err
	}
	figures, err := measure()
	if stopErr := p.stop(); err == nil {
		err = stopErr
	}
	b.judge(ctx, name, figures)
	return figures, err
}

// judge keeps and prints the profiles called name, which a process has written into the temporary
// folder, if one of the figures missed its target.
func (b *bench) judge(ctx context.Context, name string, figures []figure) {
	if !anyMissed(figures) {
		return
	}
	for _, f := range figures {
		if f.missed() {
			b.say("  MISSED %s", f)
		}
	}
	for _, kind := range []string{"cpu", "heap"} {
		file := name + "." + kind + ".prof"
		kept := filepath.Join(b.profiles, file)
		if err := os.Rename(filepath.Join(b.temp, file), kept); err != nil {
			b.say("  no %s profile: %v", kind, err)
			continue
		}
		b.say("  %s", kept)
		b.say("%s", indent(top(ctx, kept)))
	}
}

// top returns the Go toolchain's summary of a profile.
func top(ctx context.Context, profile string) string {
	out, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", fmt.Sprintf("-nodecount=%d", topLines), profile).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("go tool pprof: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func indent(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }
