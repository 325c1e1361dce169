package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"

	kjson "sigs.k8s.io/json"

	"github.com/nstance/nstance/cmd/dev-k8s/kinds"
)

// file is the state of a file when it was last read.
type file struct {
	key  string // of the served object; empty if none
	info fs.FileInfo
	held bool // its content is not served
}

func (f *file) same(info fs.FileInfo) bool {
	return f.info != nil && os.SameFile(f.info, info) && f.info.Size() == info.Size() && f.info.ModTime().Equal(info.ModTime())
}

// Take applies manual edits of a file, whose path is relative to the root.
func (s *Store) Take(path string) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.take(path)
}

func (s *Store) take(path string) {
	info, err := os.Stat(s.full(path))
	known := s.files[path]
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.problems.settle(path, nil)
		if known == nil || known.key == "" || s.gone(path, known.key) {
			delete(s.files, path)
		}
	case err != nil:
		s.hold(path, info, err)
	case known == nil || !known.same(info):
		if err := s.edited(path, info); err != nil {
			s.hold(path, info, err)
		}
	}
}

// gone applies the removal of a file; false if that could not be stored.
func (s *Store) gone(path, key string) bool {
	if s.memory.now(key) == nil {
		return true
	}
	if err := s.record(&Change{Key: key, Delete: true}); err != nil {
		s.log.Error("apply the removal of a file", slog.String("file", path), slog.Any("error", err))
		return false
	}
	s.log.Info("removed by hand", slog.String("file", path))
	return true
}

// edited applies a new or changed file.
func (s *Store) edited(path string, info fs.FileInfo) error {
	text, err := os.ReadFile(s.full(path))
	if err != nil {
		return err
	}
	key, served := "", (*Entry)(nil)
	if known := s.files[path]; known != nil && known.key != "" {
		key, served = known.key, s.memory.now(known.key)
	}
	if served != nil && same(text, served.Value) {
		s.files[path] = &file{key: key, info: info}
		s.problems.settle(path, nil)
		return nil
	}
	id, object, err := s.kinds.Judge(path, text)
	if err != nil {
		return err
	}
	value, changed, err := s.complete(id, text, object, served)
	if err != nil {
		return err
	}
	s.files[path] = &file{key: id.Key(), info: info}
	if changed {
		if err := s.place(path, id.Key(), value); err != nil {
			return err
		}
	}
	s.problems.settle(path, nil)
	s.log.Info("edited by hand", slog.String("file", path))
	lease := int64(0)
	if served != nil {
		lease = served.Lease
	}
	return s.record(&Change{Key: id.Key(), Value: value, Lease: lease})
}

// same reports whether a file has the served object, apart from whitespace.
func same(text, value []byte) bool {
	compact, err := compactJSON(text)
	return err == nil && bytes.Equal(compact, bytes.TrimSuffix(value, []byte("\n")))
}

func (s *Store) complete(id kinds.ID, text []byte, object map[string]any, served *Entry) (value []byte, changed bool, err error) {
	var before map[string]any
	if served != nil {
		if err := kjson.UnmarshalCaseSensitivePreserveInts(served.Value, &before); err != nil {
			return nil, false, fmt.Errorf("read the served object: %w", err)
		}
	}
	changed, err = kinds.Complete(id, object, before, s.now(), newUID)
	if err != nil {
		return nil, false, err
	}
	if changed {
		text, err = json.Marshal(object)
	} else {
		text, err = compactJSON(text)
	}
	return append(text, '\n'), changed, err
}

// hold leaves the file and its object as they are.
func (s *Store) hold(path string, info fs.FileInfo, why error) {
	f := &file{info: info, held: true}
	if known := s.files[path]; known != nil {
		f.key = known.key
	}
	s.files[path] = f
	s.problems.settle(path, why)
}

// Problems returns, for each file that is held back, the reason.
func (s *Store) Problems() map[string]string {
	s.writing.Lock()
	defer s.writing.Unlock()
	return maps.Clone(s.problems.why)
}
