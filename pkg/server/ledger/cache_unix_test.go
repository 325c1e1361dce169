//go:build unix

package ledger_test

import (
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
)

// The limit on the size of files stands in for a disk that is full. It holds for
// a whole process, so the test has one of its own.
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
	_ = l.Close() // may say that the last rows were lost
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "cache not written") {
		t.Errorf("log %q", log)
	}
	if reads, s := reopen(t, store, cfg); s.Listed != 303 || reads == 0 {
		t.Errorf("%d reads, %+v", reads, s)
	}
}
