package files_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nstance/nstance/pkg/files"
)

// TestFullDisk fills a small file system.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("NO FULL DISK WAS TESTED: mounting a tmpfs needs root: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	d := open(dir, nil)
	if err := d.Commit(set("old", oldFiles)); err != nil {
		t.Fatal(err)
	}
	put(t, dir, personal)
	large := nextSet()
	large.Sent["changed.conf"] = bytes.Repeat([]byte("x"), files.MaxFileSize)
	err := d.Commit(large)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(files.Failures(err, nil)["changed.conf"], "no space left") {
		t.Errorf("got %v", err)
	}
	if onlyWhole(t, dir, d) != "old" {
		t.Error("the set was taken over")
	}
	if err := d.Commit(nextSet()); err != nil || onlyWhole(t, dir, d) != "new" {
		t.Errorf("after that: %v", err)
	}
}

// TestAFileThatCantBeReplaced mounts something over a file of the set.
func TestAFileThatCantBeReplaced(t *testing.T) {
	dir := scene(t)
	other := filepath.Join(t.TempDir(), "other")
	put(t, filepath.Dir(other), map[string]string{"other": "old"})
	target := filepath.Join(dir, "linked.conf")
	if err := syscall.Mount(other, target, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("NO MOUNT IN THE WAY WAS TESTED: mounting needs root: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(target, syscall.MNT_DETACH) })
	d := open(dir, nil)
	before := tree(t, dir)
	err := d.Commit(nextSet())
	if got := files.Failures(err, nil); len(got) != 1 || got["linked.conf"] == "" {
		t.Errorf("got %v", err)
	}
	if got := tree(t, dir); !maps.Equal(got, before) {
		t.Errorf("got %v, want %v", got, before)
	}
	if left := must(os.ReadDir(filepath.Join(dir, ".nstance")))(t); len(left) != 1 {
		t.Errorf("putting things back left %v behind", left)
	}
	syscall.Unmount(target, syscall.MNT_DETACH)
	if err := d.Commit(nextSet()); err != nil || onlyWhole(t, dir, d) != "new" {
		t.Errorf("after that: %v", err)
	}
}

// TestAFileOfSomebodyElse has root edit a file so that root owns it: an unprivileged agent can
// neither link nor read it, but still replaces it.
func TestAFileOfSomebodyElse(t *testing.T) {
	if dir := os.Getenv("NSTANCE_TEST_FOREIGN_DIR"); dir != "" {
		if err := open(dir, nil).Commit(nextSet()); err != nil {
			t.Fatal(err)
		}
		return
	}
	if os.Getuid() != 0 {
		t.Skip("NO FILE OF ANOTHER USER WAS TESTED: making one needs root")
	}
	const nobody = 65534
	dir := must(os.MkdirTemp("", "nstance-foreign-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := open(dir, nil).Commit(set("old", oldFiles)); err != nil {
		t.Fatal(err)
	}
	put(t, dir, personal)
	for _, path := range []string{
		dir, filepath.Join(dir, ".nstance"), filepath.Join(dir, ".nstance/manifest"), filepath.Join(dir, "same.conf"),
	} {
		if err := os.Chown(path, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	os.Remove(filepath.Join(dir, "changed.conf"))
	put(t, dir, map[string]string{"changed.conf": "root's, mode 0600"})
	program := filepath.Join(dir, "..", filepath.Base(dir)+".test")
	if err := os.WriteFile(program, must(os.ReadFile(os.Args[0]))(t), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(program) })
	command := exec.Command(program, "-test.run=^TestAFileOfSomebodyElse$")
	command.Dir, command.Env = "/", append(os.Environ(), "NSTANCE_TEST_FOREIGN_DIR="+dir)
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := tree(t, dir); !maps.Equal(got, whole("new", newFiles)) {
		t.Errorf("got %v", got)
	}
}
