package leaktest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary is also what checks, what is checked, and what is left, as these
// variables say.
const (
	checks  = "LEAKTEST_CHECKS"  // how long it waits
	does    = "LEAKTEST_DOES"    // what the tests do
	sleeps  = "LEAKTEST_SLEEPS"  // for how long
	waiting = "LEAKTEST_WAITING" // for a signal
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(checks) != "":
		patience := duration(checks)
		_ = os.Unsetenv(checks)
		os.Exit(check(exec.Command(os.Args[0], os.Args[1:]...), os.Stderr, patience))
	case os.Getenv(sleeps) != "":
		time.Sleep(duration(sleeps))
		os.Exit(0)
	case os.Getenv(waiting) != "":
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM)
		fmt.Println("waiting")
		<-signals
		os.Exit(7)
	case os.Getenv(does) != "":
		Main(func() int { return deeds()[os.Getenv(does)]() })
	}
	os.Exit(m.Run())
}

func duration(variable string) time.Duration {
	d, err := time.ParseDuration(os.Getenv(variable))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return d
}

// deeds are what tests may do; each returns the code with which they end.
func deeds() map[string]func() int {
	writes := func(name func() string) func() int {
		return func() int {
			return ok(os.MkdirAll(filepath.Dir(name()), 0o700), os.WriteFile(name(), nil, 0o600))
		}
	}
	under := func(variable, name string) func() int {
		return writes(func() string { return filepath.Join(os.Getenv(variable), name) })
	}
	return map[string]func() int{
		"nothing":       func() int { return 0 },
		"fails":         func() int { return max(3, under("TMPDIR", "left")()) },
		"temp":          under("TMPDIR", "folder/left"),
		"home":          under("HOME", ".cache/other/left"),
		"cache":         under("HOME", ".cache/nstance/kept"),
		"tool":          under("HOME", ".kube/cache/kept"),
		"folder":        writes(func() string { return "left" }),
		"testdata":      writes(func() string { return "testdata/deep/left" }),
		"binary":        writes(func() string { return "some.test" }),
		"removes":       func() int { return ok(os.Remove("there")) },
		"short process": func() int { return leave("300ms") },
		"process":       func() int { return leave("2m") },
	}
}

func ok(errs ...error) int {
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// leave starts a process whose parent ends, in a session of its own, with an environment of
// its own: what nothing but its ancestry tells.
func leave(long string) int {
	if os.Getenv("AGAIN") == "" {
		between := exec.Command(os.Args[0])
		between.Env = append(os.Environ(), "AGAIN=1")
		between.Stdout = os.Stdout
		return ok(between.Run())
	}
	left := exec.Command(os.Args[0], "left")
	left.Env = []string{sleeps + "=" + long}
	left.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err := left.Start()
	if err == nil {
		fmt.Println("pid", left.Process.Pid)
	}
	return ok(err)
}

// fixture is a place where tests are checked.
type fixture struct {
	*testing.T
	folder, home, temp string
	patience           time.Duration
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	f := fixture{T: t, folder: t.TempDir(), home: t.TempDir(), temp: t.TempDir(), patience: time.Minute}
	for _, name := range []string{"there", "testdata/golden"} {
		path := filepath.Join(f.folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func (f fixture) command(variables ...string) (cmd *exec.Cmd, said *bytes.Buffer) {
	cmd, said = exec.Command(os.Args[0]), &bytes.Buffer{}
	cmd.Dir, cmd.Stderr = f.folder, said
	cmd.Env = append(os.Environ(), "HOME="+f.home, "XDG_CACHE_HOME=", "TMPDIR="+f.temp, "PATH=", Variable+"=", checks+"="+f.patience.String())
	cmd.Env = append(cmd.Env, variables...)
	return cmd, said
}

// run has tests do something, and returns the code of the check with what it and they said.
func (f fixture) run(what string) (code int, out, said string) {
	f.Helper()
	cmd, stderr := f.command(does + "=" + what)
	stdout, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		f.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(stdout), stderr.String()
}

func TestFiles(t *testing.T) {
	for what, want := range map[string]string{
		"nothing": "", "cache": "", "tool": "", "binary": "",
		"temp":     "in TMPDIR: folder",
		"home":     "in HOME: .cache/other/left",
		"folder":   "in the package's folder: left",
		"testdata": "in the package's folder: testdata/deep/left",
		"removes":  "gone from the package's folder: there",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			code, _, said := f.run(what)
			if leaks := want != ""; leaks != (code == 1) || !strings.Contains(said, want) || !leaks && (code != 0 || said != "") {
				t.Errorf("code %d, says %q; want %q", code, said, want)
			}
			if left, err := os.ReadDir(f.temp); err != nil || len(left) > 0 {
				t.Errorf("the check itself leaves %v (%v)", left, err)
			}
		})
	}
	t.Run("kept", func(t *testing.T) {
		f := newFixture(t)
		f.run("cache")
		if _, err := os.Stat(filepath.Join(f.home, ".cache", "nstance", "kept")); err != nil {
			t.Errorf("the cache is not the real one: %v", err)
		}
	})
}

// A failure's code is told on, and the files that may say why it is one are there.
func TestFailure(t *testing.T) {
	f := newFixture(t)
	code, _, said := f.run("fails")
	if code != 3 || !strings.Contains(said, "kept in ") || strings.Contains(said, "FAIL") {
		t.Errorf("code %d, says %q", code, said)
	}
	if kept, err := filepath.Glob(filepath.Join(f.temp, "*", "left")); err != nil || len(kept) != 1 {
		t.Errorf("kept: %v (%v)", kept, err)
	}
}

func TestProcess(t *testing.T) {
	f := newFixture(t)
	f.patience = 100 * time.Millisecond
	code, out, said := f.run("process")
	id, found := strings.CutPrefix(strings.TrimSpace(out), "pid ")
	pid, err := strconv.Atoi(id)
	if !found || err != nil {
		t.Fatalf("no process is left: %q, %q", out, said)
	}
	if code != 1 || !strings.Contains(said, fmt.Sprintf("process %d (killed): %s left", pid, os.Args[0])) {
		t.Errorf("code %d, says %q", code, said)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process is still there: %v", err)
	}
}

// What ends by itself is no leak.
func TestShortProcess(t *testing.T) {
	t.Parallel()
	if code, out, said := newFixture(t).run("short process"); code != 0 || said != "" || !strings.HasPrefix(out, "pid ") {
		t.Errorf("code %d, %q, says %q", code, out, said)
	}
}

// What others begin and write meanwhile is theirs.
func TestNeighbour(t *testing.T) {
	f := newFixture(t)
	neighbour := exec.Command(os.Args[0])
	neighbour.Env = append(os.Environ(), sleeps+"=1h")
	if err := neighbour.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := neighbour.Process.Kill(); err != nil {
			t.Errorf("the neighbour's process has ended: %v", err)
		}
		_ = neighbour.Wait() // it was killed
	}()
	cmd, said := f.command(waiting + "=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("waiting\n"))
	if _, err := io.ReadFull(out, line); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for _, folder := range []string{f.temp, f.home} {
		if err := os.WriteFile(filepath.Join(folder, "neighbour"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its code says more
	if code := cmd.ProcessState.ExitCode(); code != 7 || said.Len() > 0 {
		t.Errorf("code %d, says %q; want that of the signal's handler", code, said)
	}
}

func TestUncheckable(t *testing.T) {
	for args, want := range map[string]bool{
		"": false, "-test.v -test.run=^TestX$": false, "-test.list=.": true, "-test.fuzz=^FuzzX$": true, "--test.fuzzworker": true,
		"-test.fuzzcachedir=/x -test.timeout=10m": false,
	} {
		if got := uncheckable(strings.Fields(args)); got != want {
			t.Errorf("%q: %t, want %t", args, got, want)
		}
	}
}

func TestParseStat(t *testing.T) {
	for text, want := range map[string][2]int{
		"12 (sh) S 7 12 12 0 -1":            {12, 7},
		"12 (a) S 9) b) R 7 12 12 0 -1":     {12, 7},
		"12 (sh) Z 7 12 12 0 -1":            {},
		"":                                  {},
		"x (sh) S 7":                        {},
		"12 (sh":                            {},
		"12 (sh) S x 12":                    {},
		"4194304 (tmux: server) S 1 2 3 4 ": {4194304, 1},
	} {
		pid, parent, ok := parseStat(text)
		if ok != (want[0] > 0) || ok && (pid != want[0] || parent != want[1]) {
			t.Errorf("%q: %d, %d, %t", text, pid, parent, ok)
		}
	}
}
