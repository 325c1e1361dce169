package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nstance/nstance/cmd/dev-k8s/kinds"
)

// ErrNotJSON means that an object would not be readable in its file.
var ErrNotJSON = errors.New("the value is not JSON: kube-apiserver needs --storage-media-type=application/json")

// ErrNoLease means that a lease does not exist, or has expired.
var ErrNoLease = errors.New("no such lease")

// Change is a write of one key.
type Change struct {
	Key    string
	Value  []byte
	Lease  int64
	Delete bool
}

// Commit calls decide, with no concurrent writes, and applies its change. keys are those that
// decide reads: manual edits of their files are applied first. Without a change, or for a
// deletion of a missing key, there is no new revision. It returns the newest revision, and the
// changed key's previous version.
func (s *Store) Commit(keys []string, decide func(now func(key string) *Entry) *Change) (rev int64, prev *Entry, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	for _, key := range keys {
		if path, err := s.path(key); err != nil {
			return 0, nil, err
		} else if path != "" {
			s.take(path)
		}
	}
	change := decide(s.memory.now) // only writers modify it, and writing is held
	if change == nil {
		return s.memory.rev, nil, nil
	}
	prev = s.memory.now(change.Key)
	switch {
	case !change.Delete:
		err = s.put(change)
	case prev != nil:
		err = s.remove(change.Key)
	}
	return s.memory.rev, prev, err
}

// path returns the file of a key; empty if the key is not an object's.
func (s *Store) path(key string) (string, error) {
	id, ok := kinds.Parse(key)
	if !ok {
		return "", nil
	}
	return s.kinds.Path(id)
}

func (s *Store) put(c *Change) error {
	if c.Lease != 0 && s.leases[c.Lease] == nil {
		return ErrNoLease
	}
	path, err := s.path(c.Key)
	if err != nil {
		return err
	}
	if path != "" {
		if err := s.place(path, c.Key, c.Value); err != nil {
			return err
		}
	}
	err = s.record(c)
	if err != nil && path != "" {
		s.files[path].info = nil // it is in the file already, and will count as an edit
	}
	return err
}

func (s *Store) remove(key string) error {
	path, err := s.path(key)
	if err != nil {
		return err
	}
	if path != "" {
		if err := s.aside(path); err != nil {
			return err
		}
		if err := os.Remove(s.full(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := s.record(&Change{Key: key, Delete: true}); err != nil {
		return err
	}
	delete(s.files, path)
	return nil
}

// record makes the next revision: first on disk, then visible.
func (s *Store) record(c *Change) error {
	e := &Entry{Key: c.Key, Mod: s.memory.rev + 1}
	prev := s.memory.now(c.Key)
	if !c.Delete {
		e.Value, e.Create, e.Version, e.Lease = c.Value, e.Mod, 1, c.Lease
		if prev != nil {
			e.Create, e.Version = prev.Create, prev.Version+1
		}
	}
	if err := s.journal.add(lineOf(e)); err != nil {
		return err
	}
	s.attach(e, prev)
	s.publish(e)
	if s.journal.long() {
		return s.rewrite()
	}
	return nil
}

func (s *Store) publish(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory.apply(e)
	if len(s.memory.events) > s.history+s.history/2 {
		s.memory.compact(e.Mod - int64(s.history))
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// place writes an object to its file, formatted.
func (s *Store) place(path, key string, value []byte) error {
	var text bytes.Buffer
	if err := json.Indent(&text, bytes.TrimSuffix(value, []byte("\n")), "", "  "); err != nil {
		return fmt.Errorf("%s: %w", key, ErrNotJSON)
	}
	text.WriteByte('\n')
	if err := s.aside(path); err != nil {
		return err
	}
	if err := kinds.WriteFile(s.full(path), text.Bytes()); err != nil {
		return err
	}
	info, err := os.Stat(s.full(path))
	s.files[path] = &file{key: key, info: info}
	return err
}

// aside keeps a copy of a file that is held back, next to it and with the revision in its
// name, before the object is changed or deleted. The file itself stays until it is
// overwritten: after a crash in between, its absence would look like a removal.
func (s *Store) aside(path string) error {
	if f := s.files[path]; f == nil || !f.held {
		return nil
	}
	for n := s.memory.rev + 1; ; n++ {
		err := os.Link(s.full(path), fmt.Sprintf("%s.held-%d", s.full(path), n))
		switch {
		case errors.Is(err, fs.ErrExist):
			continue // left by a crash
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		}
		s.problems.settle(path, nil)
		return nil
	}
}

func (s *Store) full(path string) string { return filepath.Join(s.root, filepath.FromSlash(path)) }
