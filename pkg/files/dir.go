package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

// DirConfig is what NewDir needs.
type DirConfig struct {
	Path string      // an absolute path; made when the first set comes
	Mode fs.FileMode // of every file, whatever the umask
	Now  func() time.Time
	// Step is called before everything that changes the disk, with what is done to
	// which name below Path; an error is taken for the disk's own. For tests of
	// crashes and full disks; nil otherwise.
	Step func(op, name string) error
}

// Dir is a directory that holds one set of files at a time. It is safe for
// concurrent use within one process, and no other may use the same directory.
type Dir struct {
	config DirConfig

	mu     sync.Mutex // held while a set is taken over
	set    manifest
	cached map[string]cached

	latest sync.Mutex
	last   Report
}

// NewDir does not touch the disk yet.
func NewDir(c DirConfig) *Dir {
	return &Dir{config: c, cached: make(map[string]cached)}
}

// Load finds out which set is in place, and completes or takes back what a crash
// left unfinished. A directory that is missing has the empty set without a hash.
// After an error the same is tried again by the next Commit.
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

// Commit puts s in the place of the set before it, as a whole or not at all, and
// returns when it is on the disk itself. After an error the set before it is in
// place; Failures tells of which files the error is. Only when the disk refuses
// to have that set back as well something is left of both, which Load and the
// next Commit go on with.
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

// replace is Commit once what was there before is known.
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
	if err := k.stage(s, next, before, mode); err != nil {
		return manifest{}, errors.Join(err, k.discard())
	}
	err := k.rename(draftFile, commitFile)
	if err == nil {
		err = k.forward(next, before)
	}
	if err != nil {
		return manifest{}, errors.Join(err, k.undo(next))
	}
	// What can't be cleaned up now is cleaned up before the next set is staged.
	_ = k.discard()
	return next, nil
}

var (
	errInTheWay = errors.New("a directory is in its place: remove it")
	errNotThere = errors.New("it was not sent, and is not there as a regular file")
)

// judge reports what on disk speaks against s, before anything is changed.
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
