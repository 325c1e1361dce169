package nar_test

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstance/nstance/nix/hashes/nar"
)

// tree makes a folder with everything that an archive can hold.
func tree(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "tree")
	for _, step := range []func() error{
		func() error { return os.MkdirAll(filepath.Join(root, "b", "empty"), 0o700) },
		func() error { return os.WriteFile(filepath.Join(root, "B"), nil, 0o600) },
		func() error { return os.WriteFile(filepath.Join(root, "b", "eight"), []byte("12345678"), 0o600) },
		func() error { return os.WriteFile(filepath.Join(root, "b", "nine"), []byte("123456789"), 0o600) },
		func() error { return os.WriteFile(filepath.Join(root, "run"), []byte("#!/bin/sh\n"), 0o700) },
		func() error { return os.Symlink("../nowhere", filepath.Join(root, "link")) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestHash(t *testing.T) {
	root := tree(t)
	got, err := nar.Hash(root)
	if err != nil {
		t.Fatal(err)
	}
	const want = "sha256-VmiY9BmXKDOPilMGaWrd1DPz2suSmvGO2wktaM3RR3g=" // what `nix hash path` of Nix 2.8.0 says
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
	nix, err := exec.LookPath("nix")
	if err != nil {
		return
	}
	out, err := exec.CommandContext(t.Context(), nix, "--extra-experimental-features", "nix-command", "hash", "path", root).Output()
	if err != nil {
		t.Fatal(err)
	}
	if says := strings.TrimSpace(string(out)); got != says {
		t.Errorf("%s, and the Nix here says %s", got, says)
	}
}

// TestWhatCounts: contents, names and the right to execute do, and nothing else.
func TestWhatCounts(t *testing.T) {
	before, err := nar.Hash(tree(t))
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		change func(root string) error
		counts bool
	}{
		"mode":     {func(root string) error { return os.Chmod(filepath.Join(root, "B"), 0o640) }, false},
		"execute":  {func(root string) error { return os.Chmod(filepath.Join(root, "B"), 0o700) }, true},
		"contents": {func(root string) error { return os.WriteFile(filepath.Join(root, "B"), []byte("x"), 0o600) }, true},
		"name":     {func(root string) error { return os.Rename(filepath.Join(root, "B"), filepath.Join(root, "C")) }, true},
		"removal":  {func(root string) error { return os.Remove(filepath.Join(root, "b", "empty")) }, true},
	} {
		root := tree(t)
		if err := c.change(root); err != nil {
			t.Fatal(err)
		}
		after, err := nar.Hash(root)
		if err != nil || (after != before) != c.counts {
			t.Errorf("%s: %s and %s (%v)", what, before, after, err)
		}
	}
}

func TestErrors(t *testing.T) {
	if _, err := nar.Hash(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("nothing has a hash")
	}
	root := t.TempDir()
	socket, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(root, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if _, err := nar.Hash(root); err == nil || !strings.Contains(err.Error(), "want a file, a folder or a symbolic link") {
		t.Errorf("a socket: %v", err)
	}
	if err := nar.Write(full{}, tree(t)); err == nil {
		t.Error("a writer that refuses was not heard")
	}
	var b bytes.Buffer
	if err := nar.Write(&b, tree(t)); err != nil || b.Len()%8 != 0 {
		t.Errorf("%d bytes, %v", b.Len(), err)
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, os.ErrClosed }
