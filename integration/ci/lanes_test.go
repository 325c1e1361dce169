package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/leaktest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == secluded {
		fmt.Fprintln(os.Stderr, seclude(os.Args[2:]))
		os.Exit(1)
	}
	leaktest.Main(m.Run)
}

// A secluded step has no network but loopback.
func TestSecluded(t *testing.T) {
	if !canSeclude(t.Context()) {
		t.Skip("SKIPPED: no network namespace can be made here")
	}
	r := runner{logs: t.TempDir(), env: os.Environ(), canSeclude: true}
	for file, want := range map[string]func(lines []string) bool{
		"/proc/net/route":    func(lines []string) bool { return len(lines) == 1 }, // the heading
		"/proc/net/fib_trie": func(lines []string) bool { return slices.Contains(lines, "|-- 127.0.0.1") },
	} {
		var out bytes.Buffer
		if _, err := r.run(t.Context(), step{name: "alone", command: []string{"cat", file}, secluded: true}, &out); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(out.String()) {
			if line = strings.TrimSpace(line); line != "" && !strings.Contains(line, "alone") {
				lines = append(lines, line)
			}
		}
		if !want(lines) {
			t.Errorf("%s is not that of loopback alone:\n%s", file, &out)
		}
	}
}

func TestLanes(t *testing.T) {
	all := []step{{name: "a"}, {name: "b", lane: "1"}, {name: "c", lane: "1"}, {name: "d", lane: "2", secluded: true}, {name: "e"}}
	for _, c := range []struct {
		name       string
		chosen     []step
		canSeclude bool
		want       string
	}{
		{"all", all, true, "a / b c | d* / e"},
		{"without namespaces", all, false, "a / b / c / d / e"},
		{"one lane", all[:3], true, "a / b / c"},
		{"a secluded step alone", all[3:], true, "d / e"},
		{"one of each lane", all[2:4], true, "c | d*"},
	} {
		var phases []string
		for _, phase := range lanes(c.chosen, c.canSeclude) {
			var of []string
			for _, lane := range phase {
				var names []string
				for _, s := range lane {
					names = append(names, s.name+map[bool]string{true: "*"}[s.secluded])
				}
				of = append(of, strings.Join(names, " "))
			}
			phases = append(phases, strings.Join(of, " | "))
		}
		if got := strings.Join(phases, " / "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// Lanes that need each other to end run concurrently, and failures of both are reported, after what
// does not need them has run.
func TestSideBySide(t *testing.T) {
	dir := t.TempDir()
	mark := func(name string) string { return filepath.Join(dir, name) }
	wait := func(own, other string) []string {
		return []string{"sh", "-c", fmt.Sprintf("touch %s; until [ -e %s ]; do sleep 0.05; done; echo said by %s; exit 3",
			mark(own), mark(other), own)}
	}
	var out bytes.Buffer
	r := runner{out: &out, logs: dir, env: os.Environ(), canSeclude: true}
	costs, err := r.runAll(context.Background(), []step{
		{name: "one", lane: "1", command: wait("one", "two")},
		{name: "never", lane: "1", needs: "one", command: []string{"touch", mark("never")}},
		{name: "next", lane: "1", command: []string{"touch", mark("next")}},
		{name: "two", lane: "2", command: wait("two", "one")},
		{name: "late", command: []string{"touch", mark("late")}},
	})
	if err == nil || len(costs) != 3 {
		t.Fatalf("%d steps, error %v, want 3 of which 2 failed", len(costs), err)
	}
	for _, want := range []string{"FAILED: step one", "FAILED: step two", "said by one", "said by two"} {
		if !strings.Contains(err.Error()+out.String(), want) {
			t.Errorf("%q is missing in\n%v\n%s", want, err, &out)
		}
	}
	for _, name := range []string{"never", "late"} {
		if _, err := os.Stat(mark(name)); err == nil {
			t.Errorf("step %s ran after a failure", name)
		}
	}
	if _, err := os.Stat(mark("next")); err != nil {
		t.Errorf("the next step of the lane, which does not need the one that failed: %v", err)
	}
}

// An interrupt ends lanes with all processes of their steps: any that is left would keep the output
// open until the end of the grace period.
func TestInterruptedBesideOthers(t *testing.T) {
	if !canSeclude(t.Context()) {
		t.Skip("SKIPPED: no network namespace can be made here")
	}
	dir := t.TempDir()
	ctx, interrupt := context.WithCancel(t.Context())
	started := func(name string) []string {
		return []string{"sh", "-c", fmt.Sprintf("sleep 1000 & touch %s; wait", filepath.Join(dir, name))}
	}
	go func() {
		defer interrupt()
		for n := 0; n < 2 && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			files, _ := filepath.Glob(filepath.Join(dir, "lane?"))
			n = len(files)
		}
	}()
	r := runner{out: io.Discard, logs: dir, env: os.Environ(), canSeclude: true}
	_, err := r.runAll(ctx, []step{
		{name: "one", lane: "1", command: started("lane1")},
		{name: "two", lane: "2", command: started("lane2"), secluded: true},
	})
	if err == nil || strings.Contains(err.Error(), exec.ErrWaitDelay.Error()) {
		t.Errorf("interrupted: %v", err)
	}
}
