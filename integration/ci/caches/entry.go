package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// entry is one cached item, or one that is being built or removed.
type entry struct {
	kind, name string
	size       int64 // size of its files in bytes
	used       time.Time
	took       time.Duration // duration of its build; 0: unknown
	running    bool          // a process runs one of its programs
}

// partial reports whether it is being built or removed, or a process was killed doing so.
func (e entry) partial() bool { return strings.HasPrefix(e.name, ".") }

// seconds is the file in which .ci/cached records how long a build took.
const seconds = ".seconds"

// read returns the entries of a folder of caches, by kind and name; none if it does not exist.
// programs are the running ones.
func read(dir string, programs func() []string) ([]entry, error) {
	// The path without links, as in /proc.
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	kinds, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	running := programs()
	var all []entry
	for _, kind := range kinds {
		if !kind.IsDir() {
			continue
		}
		names, err := os.ReadDir(filepath.Join(dir, kind.Name()))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			e, err := readEntry(dir, kind.Name(), name.Name(), running)
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed by another process meanwhile
			}
			if err != nil {
				return nil, err
			}
			all = append(all, e)
		}
	}
	return all, nil
}

func readEntry(dir, kind, name string, running []string) (entry, error) {
	e := entry{kind: kind, name: name}
	path := filepath.Join(dir, kind, name)
	info, err := os.Lstat(path)
	if err != nil {
		return e, err
	}
	e.used = info.ModTime()
	err = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		e.size += info.Size()
		// A build in progress writes below its folder.
		if e.partial() && info.ModTime().After(e.used) {
			e.used = info.ModTime()
		}
		return nil
	})
	for _, program := range running {
		e.running = e.running || program == path || strings.HasPrefix(program, path+string(filepath.Separator))
	}
	if text, readErr := os.ReadFile(filepath.Join(path, seconds)); readErr == nil {
		if n, parseErr := strconv.Atoi(strings.TrimSpace(string(text))); parseErr == nil {
			e.took = time.Duration(n) * time.Second
		}
	}
	return e, err
}

// inUse returns the programs of all visible processes, if there is /proc.
func inUse() (programs []string) {
	if runtime.GOOS != "linux" {
		return nil
	}
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return nil
	}
	for _, link := range links {
		if program, err := os.Readlink(link); err == nil {
			programs = append(programs, program)
		}
	}
	return programs
}
