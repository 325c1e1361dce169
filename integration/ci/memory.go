package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// memory keeps which steps passed with which inputs, as files DIR/STEP/KEY, so that a step does not
// run again while all that its result depends on is the same, in another clone too.
type memory struct {
	dir   string // empty: nothing is kept
	fresh bool   // every step runs, whatever passed before
}

// newMemory returns the memory of the user's machine. FRESH=1 has every step run.
func newMemory() memory {
	m := memory{fresh: os.Getenv("FRESH") == "1"}
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return m
		}
		cache = filepath.Join(home, ".cache")
	}
	m.dir = filepath.Join(cache, "nstance", "passed")
	return m
}

// settings returns the variables that change what a step does.
func settings() []string {
	return []string{
		"CGO_ENABLED", "CHROMIUM", "ENGINE", "GOEXPERIMENT", "GOFLAGS", "K3S_IMAGE", "MINIO_IMAGE", "PLANE", "RAPID_SEED", "RUN", "SHORT",
		"TERRAFORM", "TOFU", "VERSITYGW_IMAGE",
	}
}

// key returns the hash of all that a step's result depends on: its command, Go, the tools and
// variables, and the names, modes and contents of its inputs in the folder, committed or not.
func (m memory) key(ctx context.Context, folder string, s step, env []string) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %t %s %s/%s\n", s.command, s.secluded, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, v := range env {
		if name, _, _ := strings.Cut(v, "="); slices.Contains(settings(), name) {
			fmt.Fprintf(sum, "%q\n", v)
		}
	}
	for _, tool := range s.tools {
		out, err := exec.CommandContext(ctx, tool[0], tool[1:]...).Output()
		fmt.Fprintf(sum, "%q %q %t\n", tool, out, err == nil) // missing is a version, too
	}
	files, err := s.files(ctx, folder)
	if err != nil {
		return "", err
	}
	for _, file := range files {
		if err := hashFile(sum, folder, file); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// files returns the paths of a step's inputs in a folder, sorted.
func (s step) files(ctx context.Context, folder string) ([]string, error) {
	specs := slices.Clone(s.inputs)
	for _, p := range s.packages {
		// A module of its own is listed in its folder.
		list := exec.CommandContext(ctx, "go", "list", "-deps", "-test", "-tags=integration", "-f={{if not .Standard}}{{.Dir}}{{end}}", p.pattern)
		list.Dir = filepath.Join(folder, p.folder)
		out, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("list what %s of %s depends on: %w", p.pattern, filepath.Join(".", p.folder), err)
		}
		for dir := range strings.Lines(string(out)) {
			if dir, err := filepath.Rel(folder, strings.TrimSpace(dir)); err == nil && filepath.IsLocal(dir) {
				specs = append(specs, ":(glob)"+dir+"/*", ":(glob)"+dir+"/testdata/**")
			}
		}
	}
	command := append([]string{"-C", folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"}, specs...)
	out, err := exec.CommandContext(ctx, "git", command...).Output()
	if err != nil {
		return nil, fmt.Errorf("list the inputs of step %s: %w", s.name, err)
	}
	files := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	slices.Sort(files)
	return slices.Compact(files), nil
}

func hashFile(sum hash.Hash, folder, file string) error {
	path := filepath.Join(folder, file)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(sum, "%q deleted\n", file)
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		to, err := os.Readlink(path)
		fmt.Fprintf(sum, "%q to %q\n", file, to)
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintf(sum, "%q %t %d\n", file, info.Mode()&0o100 != 0, info.Size())
	_, err = io.Copy(sum, f)
	return err
}

// recall returns what was kept about a step that passed with a key.
func (m memory) recall(s step, key string) (said string, ok bool) {
	if m.dir == "" || m.fresh || key == "" {
		return "", false
	}
	text, err := os.ReadFile(filepath.Join(m.dir, s.name, key))
	return strings.TrimSpace(string(text)), err == nil
}

// kept is how many results of a step are kept.
const kept = 50

// keep keeps that a step passed with a key, and forgets the oldest results.
func (m memory) keep(s step, key, said string) error {
	if m.dir == "" || key == "" {
		return nil
	}
	dir := filepath.Join(m.dir, s.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, key), []byte(said+"\n"), 0o644); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) <= kept {
		return err
	}
	var infos []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, old := range infos[min(kept, len(infos)):] {
		err = errors.Join(err, os.Remove(filepath.Join(dir, old.Name())))
	}
	return err
}
