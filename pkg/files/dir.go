package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// DirConfig is the input of NewDir.
type DirConfig struct {
	Path string      // an absolute path; created with the first set
	Mode fs.FileMode // of every file, overriding the umask
	Now  func() time.Time
	// Step is called before every change of the disk, with the operation and the name below
	// Path; its error is treated as the disk's. For tests of crashes and full disks; nil
	// otherwise.
	Step func(op, name string) error
}

// Dir is a directory that holds one set of files at a time. It is safe for concurrent use
// within one process; no other process may use the same directory.
type Dir struct {
	config DirConfig

	mu     sync.Mutex // held while a set is applied
	set    manifest
	cached map[string]cached

	latest sync.Mutex
	last   Report
}

// NewDir returns a Dir. It does no I/O.
func NewDir(c DirConfig) *Dir {
	return &Dir{config: c, cached: make(map[string]cached)}
}

// Load determines which set is in place, and completes or reverts what a crash interrupted. A
// missing directory has the empty set without a hash. After an error the next Commit tries
// again.
func (d *Dir) Load() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	k, err := d.open()
	if absent(err) {
		return nil
	}
	if err == nil {
		defer k.close()
		d.set, err = k.recover()
	}
	if err != nil {
		return fmt.Errorf("load the files received in %s: %w", d.config.Path, err)
	}
	return nil
}

// Commit replaces the current set with s, as a whole or not at all, and returns once it is
// durable. After an error the previous set is in place, and Failures returns the affected
// files. Only if the disk also fails to restore the previous set, parts of both remain; Load
// and the next Commit continue from there.
func (d *Dir) Commit(s Set) error {
	if err := s.Check(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := os.MkdirAll(d.config.Path, 0o750); err != nil {
		return err
	}
	k, err := d.open()
	if err != nil {
		return err
	}
	defer k.close()
	if d.set, err = k.recover(); err != nil {
		return err
	}
	next, err := k.replace(s, d.set, d.config.Mode)
	if err != nil {
		return err
	}
	d.set = next
	return nil
}

func (d *Dir) open() (disk, error) {
	root, err := os.OpenRoot(d.config.Path)
	return disk{root, d.config.Step}, err
}

// replace is Commit once the previous set is known.
func (k disk) replace(s Set, before manifest, mode fs.FileMode) (manifest, error) {
	if err := k.judge(s); err != nil {
		return manifest{}, err
	}
	next := manifest{ConfigHash: s.ConfigHash, Names: slices.Sorted(slices.Values(s.Names)), First: !k.exists(hashFile)}
	for _, name := range next.Names {
		if _, sent := s.Sent[name]; sent && !k.exists(name) {
			next.Fresh = append(next.Fresh, name)
		}
	}
	var err error
	if next.Digest, err = k.digest(s, next.Names); err != nil {
		return manifest{}, err
	}
	if err := k.stage(s, next, before, mode); err != nil {
		return manifest{}, errors.Join(err, k.discard())
	}
	err = k.rename(draftFile, commitFile)
	if err == nil {
		err = k.forward(next, before)
	}
	if err != nil {
		return manifest{}, errors.Join(err, k.undo(next))
	}
	// What can't be removed now is removed before the next set is staged.
	_ = k.discard()
	return next, nil
}

// digest returns the SHA-256, in hex, of what sha256sum prints for all files of a set in the order of
// their names. It differs whenever a file does.
func (k disk) digest(s Set, names []string) (string, error) {
	var lines strings.Builder
	for _, name := range names {
		content, sent := s.Sent[name]
		if !sent {
			var err error
			if content, err = k.read(name, MaxFileSize); err != nil {
				return "", &FileError{name, err}
			}
		}
		fmt.Fprintf(&lines, "%s  %s\n", Digest(content), name)
	}
	return Digest([]byte(lines.String())), nil
}

var (
	errInTheWay = errors.New("there is a directory with this name: remove it")
	errNotThere = errors.New("it was not sent, and there is no regular file with this name")
)

// judge checks s against the disk, before anything is changed.
func (k disk) judge(s Set) error {
	var problems []error
	if info, err := k.root.Lstat(hashFile); err == nil && info.IsDir() {
		problems = append(problems, fmt.Errorf("%s: %w", hashFile, errInTheWay))
	}
	for _, name := range s.Names {
		info, err := k.root.Lstat(name)
		_, sent := s.Sent[name]
		switch {
		case err != nil && !absent(err):
			problems = append(problems, &FileError{name, err})
		case err == nil && info.IsDir():
			problems = append(problems, &FileError{name, errInTheWay})
		case !sent && (err != nil || !info.Mode().IsRegular()):
			problems = append(problems, &FileError{name, errNotThere})
		}
	}
	return errors.Join(problems...)
}
