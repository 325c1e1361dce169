package dir

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// kept is how many versions are kept, including the newest. Since the version after the
	// one it saw still exists, a slow writer knows at once that it lost.
	kept = 8

	// patience is how many listings may race with writers before a folder without a version
	// counts as damaged.
	patience = 1000

	// The other names in a folder. A temporary file has its writer's nonce appended.
	live      = "live"
	temporary = "tmp-"
)

// folder is a key's folder by its descriptor: if the path is reused for another folder,
// operations still affect this one. The zero value means that the key has no folder.
type folder struct{ root *os.Root }

func openFolder(path string) (folder, error) {
	root, err := os.OpenRoot(path)
	if errors.Is(err, os.ErrNotExist) {
		return folder{}, nil
	}
	if err != nil {
		return folder{}, unknown(err)
	}
	return folder{root: root}, nil
}

// close closes the descriptor. Nothing is written through it, so a failure loses nothing.
func (f folder) close() {
	if f.root != nil {
		_ = f.root.Close()
	}
}

// names returns the sorted names in the folder, so that versions ascend. A removed folder is
// empty.
func (f folder) names() ([]string, error) {
	names, err := namesIn(f.root.Open("."))
	slices.Sort(names)
	return names, err
}

// newest opens the highest version. Its number is 0 if there is no object.
//
// A version that can be opened after the listing existed throughout it, and since removal is
// ascending, so did every higher one that the listing could have shown.
func (f folder) newest() (version, error) {
	if f.root == nil {
		return version{}, nil
	}
	for range patience {
		names, err := f.names()
		if err != nil {
			return version{}, unknown(err)
		}
		if !slices.Contains(names, live) {
			return version{}, nil
		}
		numbers := numbersOf(names)
		if len(numbers) == 0 {
			continue // the listing raced with writers
		}
		v, err := f.open(numbers[len(numbers)-1])
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return version{}, unknown(err)
		}
		return v, nil
	}
	return version{}, unknown(errors.New("no version in the folder of a live object"))
}

func (f folder) open(number uint64) (version, error) {
	name := version{number: number}.name()
	file, err := f.root.Open(name)
	if err != nil {
		return version{}, err
	}
	v, err := readVersion(file, number)
	if err != nil {
		file.Close()
		return version{}, fmt.Errorf("read %s: %w", name, err)
	}
	return v, nil
}

// replace makes next the newest version, if no other version follows its predecessor.
func (f folder) replace(next version, body []byte) error {
	tmp := temporary + next.nonce
	defer f.root.Remove(tmp) //nolint:errcheck // removed by another writer after leftover
	if err := f.write(tmp, next.header(), body); err != nil {
		return moved(err)
	}
	// Syncing takes long; most races are lost by now, which is cheap to detect. A missing
	// predecessor means that the race was lost so long ago that even next's name is free again.
	taken, err := f.has(next.name())
	if err != nil {
		return unknown(err)
	}
	there, err := f.has(version{number: next.number - 1}.name())
	if err != nil {
		return unknown(err)
	}
	if taken || !there {
		return errMoved
	}
	if err := f.root.Link(tmp, next.name()); err != nil {
		return moved(err)
	}
	if err := f.confirm(next); err != nil {
		return err
	}
	if err := f.sync(); err != nil {
		return unknown(err)
	}
	f.root.Remove(tmp) //nolint:errcheck // see above
	f.sweep(next.number)
	return nil
}

// confirm checks whether the version just linked really follows the one that its writer saw.
func (f folder) confirm(v version) error {
	if there, err := f.has(live); err != nil || !there {
		return unknown(errors.Join(err, errors.New("the object was deleted concurrently")))
	}
	there, err := f.has(version{number: v.number - 1}.name())
	if err != nil {
		return unknown(err)
	}
	if there {
		return nil
	}
	after, err := f.open(v.number + 1)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return unknown(err)
	}
	if err == nil {
		after.file.Close()
		if after.prev == v.nonce {
			return nil
		}
	}
	return f.withdraw(v)
}

// withdraw removes a version that was linked too late, under a name that had been used and
// removed. Removal is ascending: a version linked in time would have been removed before its
// successor, so being able to remove it here proves that it was late.
func (f folder) withdraw(v version) error {
	if err := f.root.Remove(v.name()); err != nil {
		return unknown(fmt.Errorf("the object was replaced several times concurrently: %w", err))
	}
	return errMoved
}

func (f folder) has(name string) (bool, error) {
	_, err := f.root.Lstat(name)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// sweep removes old versions, ascending and stopping at the first failure, and temporary files
// of dead writers.
func (f folder) sweep(newest uint64) {
	names, err := f.names()
	if err != nil {
		return
	}
	for _, n := range numbersOf(names) {
		if n+kept > newest {
			break
		}
		if err := f.root.Remove(version{number: n}.name()); err != nil && !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	for _, name := range names {
		if !strings.HasPrefix(name, temporary) {
			continue
		}
		if info, err := f.root.Lstat(name); err == nil && time.Since(info.ModTime()) > leftover {
			f.root.Remove(name) //nolint:errcheck // the next writer retries
		}
	}
}

// kill marks the folder as dead, durably.
func (f folder) kill() error {
	if f.root == nil {
		return nil
	}
	if err := f.root.Remove(live); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return f.sync()
}

// clear empties a dead folder. It is a no-op for a live one.
func (f folder) clear() error {
	if f.root == nil {
		return nil
	}
	names, err := f.names()
	if err != nil || slices.Contains(names, live) {
		return err
	}
	for _, name := range names {
		if err := f.root.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// write creates a file of the parts and syncs it, but not its directory entry.
func (f folder) write(name string, parts ...[]byte) error {
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	for _, p := range parts {
		if _, err := file.Write(p); err != nil {
			return err
		}
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return file.Close()
}

// sync syncs the entries. It is a no-op for a removed folder.
func (f folder) sync() error {
	d, err := f.root.Open(".")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// moved distinguishes failures caused by another writer's success.
func moved(err error) error {
	if errors.Is(err, os.ErrExist) || errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return errMoved
	}
	return unknown(err)
}
