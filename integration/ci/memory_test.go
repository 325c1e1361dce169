package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// project is a git repository with files, by their paths.
func project(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for path, text := range files {
		put(t, dir, path, text)
	}
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "-m", "all"},
	} {
		if out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return dir
}

func put(t *testing.T, dir, path, text string) {
	t.Helper()
	path = filepath.Join(dir, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

var example = map[string]string{
	"go.mod": "module example.com/m\n\ngo 1.26\n", "a/a.go": "package a\n\nimport _ \"example.com/m/b\"\n", "b/b.go": "package b\n",
	"c/c.go": "package c\n", "docs/page.md": "# Page\n", "charts/values.yaml": "a: 1\n", ".gitignore": "bin/\n",
}

// The key of a step changes with what its result depends on, committed or not, and with nothing
// else.
func TestKey(t *testing.T) {
	s := step{name: "s", command: []string{"make", "s"}}
	narrow := s.on("charts")
	compiled := s.on("go.mod").of("", "./a")
	dir := project(t, example)
	key := func(s step, env ...string) string {
		t.Helper()
		k, err := memory{}.key(t.Context(), dir, s, env)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	for _, c := range []struct {
		name, path string
		change     func(path string) error
		changes    []string
	}{
		{"a page", "docs/page.md", write("# Other\n"), []string{"whole"}},
		{"a value", "charts/values.yaml", write("a: 2\n"), []string{"whole", "programs", "narrow"}},
		{"a mode", "charts/values.yaml", func(path string) error { return os.Chmod(path, 0o755) }, []string{"whole", "programs", "narrow"}},
		{"a package", "a/a.go", write("package a\n"), []string{"whole", "programs", "compiled"}},
		{"an imported package", "b/b.go", write("package b\n\nvar B int\n"), []string{"whole", "programs", "compiled"}},
		{"another package", "c/c.go", write("package c\n\nvar C int\n"), []string{"whole", "programs"}},
		{"a new file", "b/data.txt", write("x"), []string{"whole", "programs", "compiled"}},
		{"a new file of tests", "a/testdata/x/y", write("x"), []string{"whole", "programs", "compiled"}},
		{"a removed file", "c/c.go", os.Remove, []string{"whole", "programs"}},
		{"an ignored file", "bin/a", write("x"), nil},
	} {
		dir = project(t, example)
		of := map[string]step{"whole": s.on(whole()...), "programs": s.on(programs()...), "narrow": narrow, "compiled": compiled}
		before := map[string]string{}
		for name, s := range of {
			before[name] = key(s)
		}
		if err := c.change(filepath.Join(dir, c.path)); err != nil {
			t.Fatal(err)
		}
		for name, s := range of {
			if got := key(s) != before[name]; got != slices.Contains(c.changes, name) {
				t.Errorf("%s: the key of a step on %s changes: %t", c.name, name, got)
			}
		}
	}
	all := []string{
		key(narrow), key(narrow, "PLANE=1"), key(narrow, "PLANE=0"), key(narrow.by("echo", "1.0")), key(narrow.by("echo", "1.1")),
		key(narrow.by("no such command")), key(narrow.isolated()), key(step{name: "s", command: []string{"make", "other"}}.on("charts")),
	}
	if slices.Sort(all); len(slices.Compact(all)) != 8 {
		t.Errorf("%d different keys, want 8", len(slices.Compact(all)))
	}
	if key(narrow, "HOME=/elsewhere") != key(narrow) {
		t.Error("the key depends on a variable that changes nothing")
	}
	first := key(s.on(whole()...))
	if dir = project(t, example); key(s.on(whole()...)) != first {
		t.Error("the key differs in another clone")
	}
}

func write(text string) func(path string) error {
	return func(path string) error {
		return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600))
	}
}

// A step that passed does not run again with the same inputs, in another clone either; one that
// failed, that changed its inputs, or that has none does.
func TestNothingIsCheckedTwice(t *testing.T) {
	memories, runs := t.TempDir(), filepath.Join(t.TempDir(), "runs")
	count := func(script string) []string {
		return []string{"sh", "-c", fmt.Sprintf("echo run >> %s; %s", runs, script)}
	}
	run := func(dir string, fresh bool, s step) (text string, ran bool) {
		t.Helper()
		before, _ := os.ReadFile(runs) // there is none before the first run
		var out bytes.Buffer
		r := runner{
			name: "make ci", out: &out, logs: t.TempDir(), env: os.Environ(), folder: dir, memory: memory{dir: memories, fresh: fresh},
		}
		costs, _ := r.runAll(t.Context(), []step{s}) // some steps fail
		printCosts(&out, costs, 0)
		after, err := os.ReadFile(runs)
		if err != nil {
			t.Fatal(err)
		}
		return out.String(), len(after) > len(before)
	}
	one, other := project(t, example), project(t, example)
	passes := step{name: "passes", command: count("true")}.on("charts")
	for _, c := range []struct {
		name, dir string
		fresh     bool
		step      step
		want      bool
	}{
		{"at first", one, false, passes, true},
		{"again", one, false, passes, false},
		{"in another clone", other, false, passes, false},
		{"asked for all", other, true, passes, true},
		{"without inputs", one, false, step{name: "always", command: count("true")}, true},
		{"without inputs, again", one, false, step{name: "always", command: count("true")}, true},
		{"a failure", one, false, step{name: "fails", command: count("false")}.on("charts"), true},
		{"a failure, again", one, false, step{name: "fails", command: count("false")}.on("charts"), true},
		{"its own inputs", one, false, step{name: "changes", command: count("date +%N >> " + one + "/charts/new")}.on("charts"), true},
		{"its own inputs, again", one, false, step{name: "changes", command: count("date +%N >> " + one + "/charts/new")}.on("charts"), true},
		{"other inputs", one, false, passes, true},
	} {
		text, ran := run(c.dir, c.fresh, c.step)
		if ran != c.want {
			t.Errorf("%s: it runs: %t\n%s", c.name, ran, text)
		}
		if !ran && strings.Count(text, "passed at ") < 2 {
			t.Errorf("%s: its output and the table do not say when and where it passed:\n%s", c.name, text)
		}
	}
}

// Only the newest results are kept.
func TestKeep(t *testing.T) {
	m := memory{dir: t.TempDir()}
	s := step{name: "s"}
	for n := range kept + 10 {
		if err := m.keep(s, fmt.Sprintf("key%d", n), "passed"); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(m.dir, "s")); err != nil || len(entries) != kept {
		t.Errorf("%d results are kept (%v), want %d", len(entries), err, kept)
	}
	if _, ok := m.recall(s, fmt.Sprintf("key%d", kept+9)); !ok {
		t.Error("the newest result is not kept")
	}
}
