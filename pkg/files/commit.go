package files

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// Reserved names in the receive directory. No received file can have one.
const (
	homeDir      = ".nstance"
	stageDir     = homeDir + "/stage"
	oldDir       = homeDir + "/old"
	draftFile    = homeDir + "/draft" // renamed to commitFile
	commitFile   = homeDir + "/commit"
	undoFile     = homeDir + "/undo"
	manifestFile = homeDir + "/manifest"
)

// discard removes what is not needed without a journal.
func (k disk) discard() error {
	return errors.Join(k.clear(stageDir), k.clear(oldDir), k.remove(draftFile))
}

// stage writes everything to disk, so that only renames remain, which hardly need space.
func (k disk) stage(s Set, next, before manifest, mode fs.FileMode) error {
	if err := k.furnish(); err != nil {
		return err
	}
	for _, name := range next.Names {
		content, sent := s.Sent[name]
		if !sent {
			continue
		}
		if err := k.create(stageDir+"/"+name, content, mode); err != nil {
			return &FileError{name, err}
		}
		if err := k.backUp(name, mode); err != nil {
			return &FileError{name, err}
		}
	}
	for _, name := range leaving(before, next) {
		if err := k.backUp(name, mode); err != nil {
			return &FileError{name, err}
		}
	}
	if err := k.create(stageDir+"/"+hashFile, next.hashText(), mode); err != nil {
		return err
	}
	if err := k.backUp(hashFile, mode); err != nil {
		return err
	}
	record, err := next.encode()
	if err != nil {
		return err
	}
	if err := k.create(draftFile, record, 0o600); err != nil {
		return err
	}
	return errors.Join(k.sync(stageDir), k.sync(oldDir), k.sync(homeDir), k.sync("."))
}

// furnish creates the hidden folders, empty.
func (k disk) furnish() error {
	if !k.exists(homeDir) {
		if err := k.mkdir(homeDir); err != nil {
			return err
		}
	}
	if err := k.home(); err != nil {
		return err
	}
	if err := k.discard(); err != nil {
		return err
	}
	if err := k.mkdir(stageDir); err != nil {
		return err
	}
	return k.mkdir(oldDir)
}

// home reports whether the hidden folder is a directory. A symbolic link in its place is not
// followed.
func (k disk) home() error {
	info, err := k.root.Lstat(homeDir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory: remove it", homeDir)
	}
	return err
}

// leaving returns the files of the previous set that are not in the next.
func leaving(before, next manifest) []string {
	return slices.DeleteFunc(slices.Clone(before.Names), func(name string) bool { return slices.Contains(next.Names, name) })
}

// backUp keeps the file that is about to be replaced. A hard link costs nothing and shares the
// inode; if it can't be made (another owner, a file system without links) the file is copied.
// An unreadable file is not kept, because refusing to replace it would keep a broken file for
// ever.
func (k disk) backUp(name string, mode fs.FileMode) error {
	if info, err := k.root.Lstat(name); absent(err) || err == nil && info.IsDir() {
		return nil
	}
	if k.link(name, oldDir+"/"+name) == nil {
		return nil
	}
	content, err := k.read(name, MaxFileSize)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	return k.create(oldDir+"/"+name, content, mode)
}

// forward puts a committed set in place. Idempotent.
func (k disk) forward(next, before manifest) error {
	if err := k.sync(homeDir); err != nil {
		return err
	}
	for _, name := range next.Names {
		if err := k.rename(stageDir+"/"+name, name); err != nil && !absent(err) {
			return &FileError{name, err}
		}
	}
	for _, name := range leaving(before, next) {
		if err := k.remove(name); err != nil {
			return &FileError{name, err}
		}
	}
	if err := k.sync("."); err != nil {
		return err
	}
	if err := k.rename(stageDir+"/"+hashFile, hashFile); err != nil && !absent(err) {
		return err
	}
	if err := k.sync("."); err != nil {
		return err
	}
	if err := k.rename(commitFile, manifestFile); err != nil {
		return err
	}
	// The set is in place. If a power failure loses this rename, the next start finds the
	// journal and has nothing left to move.
	_ = k.sync(homeDir)
	return nil
}

// undo reverts forward. From its first rename on, recovery after a crash continues undo, not
// forward.
func (k disk) undo(next manifest) error {
	switch err := k.rename(commitFile, undoFile); {
	case absent(err):
		return k.discard() // nothing was committed
	case err != nil:
		return err
	}
	return k.back(next)
}

// back puts the previous set in place again. Idempotent.
func (k disk) back(next manifest) error {
	if err := k.sync(homeDir); err != nil {
		return err
	}
	fresh := next.Fresh
	if next.First {
		fresh = append([]string{hashFile}, fresh...)
	}
	for _, name := range fresh {
		if k.exists(stageDir + "/" + name) {
			continue // never put in place
		}
		if err := k.remove(name); err != nil {
			return &FileError{name, err}
		}
	}
	if err := k.restore(next); err != nil {
		return err
	}
	if err := k.sync("."); err != nil {
		return err
	}
	if err := k.remove(undoFile); err != nil {
		return err
	}
	return errors.Join(k.sync(homeDir), k.discard())
}

// restore renames the kept files back, except those that were never moved: a file that can't
// be replaced is the usual reason for undo.
func (k disk) restore(next manifest) error {
	entries, err := fs.ReadDir(k.root.FS(), oldDir)
	if err != nil && !absent(err) {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		replaced := name == hashFile || slices.Contains(next.Names, name)
		if replaced && k.exists(stageDir+"/"+name) || !replaced && k.exists(name) {
			continue
		}
		if err := k.rename(oldDir+"/"+name, name); err != nil {
			return &FileError{name, err}
		}
	}
	return nil
}
