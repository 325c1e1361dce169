package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m.Run) }

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestExcess(t *testing.T) {
	hours := func(n int) time.Time { return now.Add(-time.Duration(n) * time.Hour) }
	for _, c := range []struct {
		name string
		all  []entry
		want []string
	}{
		{"little", []entry{{name: "a", size: 60, used: hours(90)}, {name: "b", size: 40, used: hours(80)}}, nil},
		{"the oldest first", []entry{{name: "a", size: 60, used: hours(80)}, {name: "b", size: 60, used: hours(90)}}, []string{"b"}},
		{"as many as it takes", []entry{
			{name: "a", size: 60, used: hours(90)}, {name: "b", size: 60, used: hours(80)}, {name: "c", size: 60, used: hours(70)},
		}, []string{"a", "b"}},
		{"one that is too large alone", []entry{{name: "a", size: 101, used: hours(4)}}, []string{"a"}},
		{"what was just used", []entry{{name: "a", size: 60, used: hours(2)}, {name: "b", size: 60, used: hours(4)}}, []string{"b"}},
		{"all was just used", []entry{{name: "a", size: 60, used: hours(2)}, {name: "b", size: 60, used: hours(1)}}, nil},
		{"what runs", []entry{{name: "a", size: 60, used: hours(90), running: true}, {name: "b", size: 60, used: hours(80)}}, []string{"b"}},
		{"at one time", []entry{{name: "b", size: 60, used: hours(9)}, {name: "a", size: 60, used: hours(9)}}, []string{"a"}},
		{"what killed builds left", []entry{
			{name: ".building-x", size: 1, used: hours(4)}, {name: "a", size: 1, used: hours(4)},
		}, []string{".building-x"}},
		{"what is being built", []entry{{name: ".building-x", size: 60, used: hours(1)}, {name: "a", size: 60, used: hours(4)}}, []string{"a"}},
	} {
		var got []string
		for _, e := range excess(c.all, 100, now) {
			got = append(got, e.name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: removes %v, want %v", c.name, got, c.want)
		}
	}
}

func TestLimit(t *testing.T) {
	for text, want := range map[string]int64{
		"": 4 << 30, "0MiB": 0, "1.5GiB": 3 << 29, "800 MiB": 800 << 20, "4": -1, "4GB": -1, "-1GiB": -1, "GiB": -1, "NaNGiB": -1, "InfGiB": -1,
	} {
		got, err := limit(text)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), variable) {
			t.Errorf("%q: the error does not name the variable: %v", text, err)
		}
	}
}

// cache is a folder of caches.
type cache struct {
	*testing.T
	home, dir string
}

func newCache(t *testing.T) cache {
	home := t.TempDir()
	return cache{T: t, home: home, dir: filepath.Join(home, ".cache", "nstance")}
}

// put creates an entry that was last used that many days ago.
func (c cache) put(name string, size, days int) {
	c.Helper()
	path := filepath.Join(c.dir, name)
	used := now.AddDate(0, 0, -days)
	c.must(os.MkdirAll(filepath.Join(path, "deep"), 0o755))
	c.must(os.WriteFile(filepath.Join(path, "deep", "file"), make([]byte, size), 0o600))
	c.must(os.Chtimes(filepath.Join(path, "deep", "file"), used, used))
	c.must(os.Chmod(filepath.Join(path, "deep"), 0o555))
	c.must(os.Chtimes(path, used, used))
	c.Cleanup(func() { _ = os.Chmod(filepath.Join(path, "deep"), 0o755) }) // only runs at the end, if it exists
}

func (c cache) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c cache) names() []string {
	c.Helper()
	found, err := filepath.Glob(filepath.Join(c.dir, "*", "*"))
	c.must(err)
	hidden, err := filepath.Glob(filepath.Join(c.dir, "*", ".*"))
	c.must(err)
	var names []string
	for _, path := range append(found, hidden...) {
		names = append(names, strings.TrimPrefix(path, c.dir+"/"))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (c cache) run(what, most string) string {
	c.Helper()
	var out bytes.Buffer
	env := map[string]string{"HOME": c.home, variable: most}
	c.must(run([]string{what}, func(name string) string { return env[name] }, &out, now))
	return out.String()
}

func TestPrune(t *testing.T) {
	c := newCache(t)
	if said := c.run("prune", ""); said != "" {
		t.Errorf("where there is nothing: %q", said)
	}
	c.put("plane/old", 1<<20, 3)
	c.put("plane/new", 1<<20, 1)
	c.put("stand-ins/older", 1<<20, 4)
	c.put("terraform/.building-killed", 1<<20, 2)
	if said := c.run("prune", "4MiB"); strings.Count(said, "\n") != 1 || !strings.Contains(said, "terraform/.building-killed") {
		t.Errorf("with room for all it says %q", said)
	}
	said := c.run("prune", "1.5MiB")
	if got := c.names(); !slices.Equal(got, []string{"plane/new"}) {
		t.Errorf("left: %v", got)
	}
	if !strings.Contains(said, "plane/old, 1 MiB, last used 2025-12-30") || !strings.Contains(said, "stand-ins/older") {
		t.Errorf("says %q", said)
	}
}

// TestUsedMeanwhile: an entry that is used between the scan and its removal is kept.
func TestUsedMeanwhile(t *testing.T) {
	c := newCache(t)
	c.put("plane/a", 1, 3)
	all, err := read(c.dir, func() []string { return nil })
	c.must(err)
	c.must(os.Chtimes(filepath.Join(c.dir, "plane", "a"), now, now))
	if isGone, err := remove(c.dir, all[0]); isGone || err != nil {
		t.Errorf("removed: %t, %v", isGone, err)
	}
	if got := c.names(); !slices.Equal(got, []string{"plane/a"}) {
		t.Errorf("left: %v", got)
	}
}

func TestRunning(t *testing.T) {
	c := newCache(t)
	c.put("plane/a", 1, 3)
	c.put("plane/ab", 1, 3)
	physical, err := filepath.EvalSymlinks(c.dir)
	c.must(err)
	all, err := read(c.dir, func() []string { return []string{filepath.Join(physical, "plane", "ab", "etcd")} })
	c.must(err)
	for _, e := range all {
		if e.running != (e.name == "ab") {
			t.Errorf("%s: running: %t", e.name, e.running)
		}
	}
}

// TestInUse: a running program is found by its path.
func TestInUse(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	programs := inUse()
	if programs == nil {
		t.Skip("SKIPPED: there is no /proc here")
	}
	if !slices.Contains(programs, self) {
		t.Errorf("%s is not among them", self)
	}
}

func TestReport(t *testing.T) {
	c := newCache(t)
	if said := c.run("report", ""); !strings.Contains(said, "0 MiB of at most 4 GiB (NSTANCE_CACHE_MAX) in ~/.cache/nstance\n") ||
		!strings.Contains(said, "none: about 10 minutes") {
		t.Errorf("where there is nothing:\n%s", said)
	}
	c.put("plane/a", 3<<20, 1)
	c.put("plane/b", 2<<20, 1)
	c.must(os.WriteFile(filepath.Join(c.dir, "plane", "a", seconds), []byte("90\n"), 0o600))
	said := c.run("report", "512MiB")
	for _, want := range []string{"5 MiB of at most 512 MiB", "2, 5 MiB, built in 1m30s"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in:\n%s", want, said)
		}
	}
}

// cached runs .ci/cached on the caches.
func (c cache) cached(args ...string) (string, error) {
	c.Helper()
	script, err := filepath.Abs("../../../.ci/cached")
	c.must(err)
	cmd := exec.CommandContext(c.Context(), script, args...)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Dir(c.dir), variable+"=1MiB")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, said.Bytes())
	}
	return strings.TrimSpace(string(out)), err
}

// TestCached: a missing entry is built once, by a command that gets a folder; a failed build leaves
// nothing behind, and a used entry is marked as used.
func TestCached(t *testing.T) {
	c := newCache(t)
	c.put("plane/old", 2<<20, 3)
	if out, err := c.cached("-n", "stand-ins/a"); err == nil || out != "" {
		t.Errorf("nothing is built: %q, %v", out, err)
	}
	if out, err := c.cached("stand-ins/a", "sh", "-c", `echo half >"$1/file"; exit 3`, "sh"); err == nil || out != "" {
		t.Errorf("the build fails: %q, %v", out, err)
	}
	if got := c.names(); !slices.Equal(got, []string{"plane/old"}) {
		t.Errorf("a failed build leaves %v", got)
	}
	build := []string{"stand-ins/a", "sh", "-c", `echo "$1" whole >"$2/file"; echo said`, "sh", "a word"}
	folder, err := c.cached(build...)
	c.must(err)
	if text, err := os.ReadFile(filepath.Join(folder, "file")); err != nil || string(text) != "a word whole\n" {
		t.Errorf("built %q in %q, %v", text, folder, err)
	}
	if got := c.names(); !slices.Equal(got, []string{"stand-ins/a"}) {
		t.Errorf("what is too much is still there: %v", got)
	}
	c.must(os.Chtimes(folder, now, now))
	again, err := c.cached("stand-ins/a", "false")
	if err != nil || again != folder {
		t.Errorf("built again: %q, %v", again, err)
	}
	if info, err := os.Stat(folder); err != nil || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("taking it leaves no mark: %v, %v", info, err)
	}
}
