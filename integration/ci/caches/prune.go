package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// variable names the variable with the limit.
const variable = "NSTANCE_CACHE_MAX"

// usual is the default limit.
const usual = 4 << 30

// recent is how long an entry counts as in use after a use: longer than the time between two steps
// of continuous integration that use the same entry.
const recent = 3 * time.Hour

// limit parses a size with the suffix MiB or GiB; empty: the default.
func limit(text string) (int64, error) {
	if text == "" {
		return usual, nil
	}
	for unit, size := range map[string]float64{"MiB": 1 << 20, "GiB": 1 << 30} {
		number, found := strings.CutSuffix(text, unit)
		if !found {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err == nil && n >= 0 && n < 1<<20 {
			return int64(n * size), nil
		}
	}
	return 0, fmt.Errorf("%s=%q: want a size, such as 4GiB or 800MiB", variable, text)
}

// excess returns the entries to remove: leftovers of killed builds, and the least recently used
// entries until the rest is within the limit. Entries in use are kept, so the rest may exceed it.
func excess(all []entry, most int64, now time.Time) (remove []entry) {
	var total int64
	var may []entry
	for _, e := range all {
		isUsed := e.running || now.Sub(e.used) < recent
		switch {
		case e.partial() && !isUsed:
			remove = append(remove, e)
			continue
		case !isUsed:
			may = append(may, e)
		}
		total += e.size
	}
	slices.SortFunc(may, func(a, b entry) int {
		return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	for _, e := range may {
		if total <= most {
			break
		}
		total -= e.size
		remove = append(remove, e)
	}
	return remove
}

// prune removes the excess in a folder, and lists it. It does nothing while another process prunes.
func prune(dir string, out io.Writer, most int64, now time.Time, programs func() []string) error {
	lock, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil
		}
		return fmt.Errorf("hold %s: %w", dir, err)
	}
	all, err := read(dir, programs)
	if err != nil {
		return err
	}
	var errs error
	for _, e := range excess(all, most, now) {
		isGone, err := remove(dir, e)
		errs = errors.Join(errs, err)
		if isGone {
			fmt.Fprintf(out, "removed from %s: %s/%s, %s, last used %s\n", dir, e.kind, e.name, mebibytes(e.size), e.used.Format(time.DateOnly))
		}
	}
	return errs
}

// remove removes an entry, unless it was used after it was read. It renames the entry before it
// checks that: a build that uses an entry marks it first, and looks for it afterwards.
func remove(dir string, e entry) (isGone bool, err error) {
	from, to := filepath.Join(dir, e.kind, e.name), filepath.Join(dir, e.kind, ".removing-"+strings.TrimLeft(e.name, "."))
	if err := os.Rename(from, to); err != nil {
		return false, err
	}
	if info, err := os.Lstat(to); err == nil && !e.partial() && info.ModTime().After(e.used) {
		return false, os.Rename(to, from)
	}
	// Other modules' programs may lack write permission.
	err = filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, 0o700)
		}
		return err
	})
	return true, errors.Join(err, os.RemoveAll(to))
}
