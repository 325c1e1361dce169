//go:build unix

package ledger_test

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
)

// The file size limit simulates a full disk. It applies to a whole process, so the test runs its
// own.
func TestFullDisk(t *testing.T) {
	const mine = "TEST_FULL_DISK"
	if os.Getenv(mine) == "" {
		child := exec.Command(os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
		child.Env = append(os.Environ(), mine+"=1")
		out, err := child.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestFullDisk") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	store, cfg, log := shard(t, 3)
	signal.Ignore(syscall.SIGXFSZ)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	l := open(t, cfg)
	load(t, l)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 40_000, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	w := l.Lead(term{epoch: 2})
	for n := 100; n < 400; n++ {
		create(t, w, n)
		update(t, w, n, fleet.Running)
	}
	_ = l.Close() // may return that the last rows were lost
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "can't write cache") {
		t.Errorf("log %q", log)
	}
	if reads, s := reopen(t, store, cfg); s.Listed != 303 || reads == 0 {
		t.Errorf("%d reads, %+v", reads, s)
	}
}

// TestCacheIsPrivate: only the server's user can read the cache, in any folder, and also if an
// earlier version or a copy left it readable.
func TestCacheIsPrivate(t *testing.T) {
	_, cfg, _ := shard(t, 3)
	private := func() {
		t.Helper()
		files, err := filepath.Glob(cfg.CachePath + "*")
		if err != nil || len(files) == 0 {
			t.Fatalf("no files: %v", err)
		}
		for _, file := range files {
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v; want mode 0600", filepath.Base(file), info.Mode(), err)
			}
		}
	}
	private()
	if err := os.Chmod(cfg.CachePath, 0o644); err != nil {
		t.Fatal(err)
	}
	l := open(t, cfg)
	load(t, l)
	create(t, l.Lead(term{epoch: 2}), 100)
	private()
	closeLedger(t, l)
	private()
	if err := os.WriteFile(cfg.CachePath, []byte("damaged, so that it is made anew"), 0o644); err != nil {
		t.Fatal(err)
	}
	l = open(t, cfg)
	load(t, l)
	private()
	closeLedger(t, l)
}
