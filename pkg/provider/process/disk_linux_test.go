package process_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
)

// TestFullDisk runs out of space at each step of a create: nothing is started, nothing is left, and
// the same create succeeds once there is space.
func TestFullDisk(t *testing.T) {
	f := newFixture(t)
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", f.dir).CombinedOutput(); err != nil {
		t.Skipf("a small file system can't be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		f.killAll(t)
		// A child that just ended may keep its working directory busy for a moment.
		eventually(t, "the file system is unmounted", func() bool { return syscall.Unmount(f.dir, 0) == nil })
	})
	p := open(t, f.config(t, scope))
	vm := create(t, p, spec(1))
	full := filepath.Join(f.dir, "full")
	fill := func(keep int64) {
		t.Helper()
		for {
			var fs syscall.Statfs_t
			if err := syscall.Statfs(f.dir, &fs); err != nil {
				t.Fatal(err)
			}
			err := os.WriteFile(full, make([]byte, max(0, int64(fs.Bfree)-keep)*fs.Bsize), 0o600)
			if err == nil {
				return
			}
			// The other VM may have logged something meanwhile.
			if removed := os.Remove(full); !errors.Is(err, syscall.ENOSPC) || removed != nil {
				t.Fatal(err, removed)
			}
		}
	}
	// Space for nothing, the tags only, the tags and the certificate, and for all but the pid.
	for keep := range int64(4) {
		fill(keep)
		_, err := p.Create(t.Context(), spec(2))
		if !errors.Is(err, provider.ErrQuota) || !provider.Definite(err) {
			t.Errorf("with %d blocks free: %v, want a definite error", keep, err)
		}
		if got := state(t, p, provider.Ref{ID: spec(2).ID}); got != provider.StateDeleted {
			t.Errorf("with %d blocks free: something %s is left", keep, got)
		}
		if got := state(t, p, vm.Ref()); got != provider.StateRunning {
			t.Errorf("with %d blocks free: the other VM is %s", keep, got)
		}
		if err := os.Remove(full); err != nil {
			t.Fatal(err)
		}
	}
	create(t, p, spec(2))
	fill(0)
	if err := provider.DeleteOne(t.Context(), p, provider.Ref{ID: spec(2).ID}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a VM on a full disk is deleted", func() bool {
		return state(t, p, provider.Ref{ID: spec(2).ID}) == provider.StateDeleted
	})
}
