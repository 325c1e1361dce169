package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestInheritedFiles: an agent has no file that the server inherited, only its log and life.
func TestInheritedFiles(t *testing.T) {
	f := newFixture(t)
	secret, err := os.Create(filepath.Join(t.TempDir(), "secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	// As if it was inherited: such files don't close on exec.
	if _, err := unix.FcntlInt(secret.Fd(), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	vm := create(t, open(t, f.config(t, scope)), spec(1))
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", f.pid(vm)))
	if err != nil {
		t.Fatal(err)
	}
	var has []string
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil {
			has = append(has, to)
		}
	}
	for file, want := range map[string]bool{
		secret.Name(): false, filepath.Join(f.folder(vm), "life"): true, filepath.Join(f.folder(vm), "agent.log"): true,
	} {
		if slices.Contains(has, file) != want {
			t.Errorf("the agent has %q open; want %s among them: %t", has, file, want)
		}
	}
}
