package files

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"time"
)

// Report is the state of a directory.
type Report struct {
	// ConfigHash is the hash of the current set; empty if there is none, or if config.hash
	// differs.
	ConfigHash string
	Files      []Status // of every file of the set, sorted by name
}

// Status is the state of one file of the set.
type Status struct {
	Name   string
	SHA256 string // hex; empty: there is no regular file of this name
	Leaf   *Leaf  // of a .crt file
	Err    error  // the file exists but is unreadable or invalid for its name
}

// cached is the last read state of a file, and its attributes at that time.
type cached struct {
	info   fs.FileInfo
	status Status
}

// settled is how old a file's modification time must be for its attributes to show the next
// change.
const settled = 2 * time.Second

// Report reads the disk: a file's content only if its time, size or inode has changed, so that
// it may be called every few seconds. While a set is being applied it returns the previous
// report instead of blocking.
func (d *Dir) Report() Report {
	d.latest.Lock()
	defer d.latest.Unlock()
	if !d.mu.TryLock() {
		return d.last.clone()
	}
	defer d.mu.Unlock()
	d.last = d.inspect()
	return d.last.clone()
}

func (r Report) clone() Report {
	r.Files = slices.Clone(r.Files)
	return r
}

func (d *Dir) inspect() Report {
	if d.set.ConfigHash == "" {
		return Report{}
	}
	r := Report{Files: make([]Status, 0, len(d.set.Names))}
	seen := make(map[string]cached, len(d.set.Names)+1)
	k, err := d.open()
	if err == nil {
		defer k.close()
	}
	for _, name := range d.set.Names {
		status := Status{Name: name}
		if err == nil {
			status = d.status(k, name, seen)
		} else if !absent(err) {
			status.Err = err
		}
		r.Files = append(r.Files, status)
	}
	if err == nil && d.status(k, hashFile, seen).SHA256 == Digest(d.set.hashText()) {
		r.ConfigHash = d.set.ConfigHash
	}
	d.cached = seen
	return r
}

// status returns the cached status of a file, or reads it again.
func (d *Dir) status(k disk, name string, seen map[string]cached) Status {
	info, err := k.root.Lstat(name)
	switch {
	case absent(err) || err == nil && !info.Mode().IsRegular():
		return Status{Name: name}
	case err != nil:
		return Status{Name: name, Err: err}
	}
	if old, ok := d.cached[name]; ok && same(old.info, info) {
		seen[name] = old
		return old.status
	}
	status := read(k, name)
	if status.Err == nil && d.config.Now().Sub(info.ModTime()) > settled {
		seen[name] = cached{info, status}
	}
	return status
}

func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func read(k disk, name string) Status {
	content, err := k.read(name, MaxFileSize)
	if err != nil {
		return Status{Name: name, Err: err}
	}
	status := Status{Name: name, SHA256: Digest(content)}
	if path.Ext(name) == ".crt" {
		leaf, err := ReadLeaf(content)
		if err != nil {
			status.Err = err
			return status
		}
		status.Leaf = &leaf
	}
	return status
}
