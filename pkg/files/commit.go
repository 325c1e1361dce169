package files

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// Our own names in the receive directory. None can be that of a received file.
const (
	homeDir      = ".nstance"
	stageDir     = homeDir + "/stage"
	oldDir       = homeDir + "/old"
	draftFile    = homeDir + "/draft" // becomes commitFile
	commitFile   = homeDir + "/commit"
	undoFile     = homeDir + "/undo"
	manifestFile = homeDir + "/manifest"
)

// discard removes what is not needed once no journal is there.
func (k disk) discard() error {
	return errors.Join(k.clear(stageDir), k.clear(oldDir), k.remove(draftFile))
}

// stage gets everything ready on the disk itself, so that what is left to do is
// renames, which hardly need space.
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
		if err := k.keep(name, mode); err != nil {
			return &FileError{name, err}
		}
	}
	for _, name := range leaving(before, next) {
		if err := k.keep(name, mode); err != nil {
			return &FileError{name, err}
		}
	}
	if err := k.create(stageDir+"/"+hashFile, []byte(s.ConfigHash+"\n"), mode); err != nil {
		return err
	}
	if err := k.keep(hashFile, mode); err != nil {
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

// furnish makes our own folders, empty.
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

// home reports whether our folder is one. A symbolic link in its place is not
// ours to follow.
func (k disk) home() error {
	info, err := k.root.Lstat(homeDir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory: remove it", homeDir)
	}
	return err
}

// leaving are the files of the set before that the next one has not.
func leaving(before, next manifest) []string {
	return slices.DeleteFunc(slices.Clone(before.Names), func(name string) bool { return slices.Contains(next.Names, name) })
}

// keep holds on to what is about to be replaced. A hard link costs nothing and
// is the very file; where one can't be made (not our file, a file system without
// links) it is a copy. What we can't even read is not kept, because refusing to
// replace it would keep a broken file for ever.
func (k disk) keep(name string, mode fs.FileMode) error {
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

// forward puts a committed set in place, whatever of that is done already.
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
	// The set is in place. Should a power cut lose this last name, the next start
	// finds the journal and has nothing left to move.
	_ = k.sync(homeDir)
	return nil
}

// undo takes back what forward did. From the first rename on a crash goes on
// with that and no longer forward.
func (k disk) undo(next manifest) error {
	switch err := k.rename(commitFile, undoFile); {
	case absent(err):
		return k.discard() // nothing was committed
	case err != nil:
		return err
	}
	return k.back(next)
}

// back puts the set before next in its place again, whatever of that is done
// already.
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

// restore renames what was kept into its place, but for what never left it: a
// file that can't be replaced is the usual reason to be here.
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
