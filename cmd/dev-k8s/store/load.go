package store

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nstance/nstance/cmd/dev-k8s/kinds"
)

// load reads the journal, and then compares the files with it.
func (s *Store) load() error {
	live := map[string]*Entry{}
	path := filepath.Join(s.root, journalFile)
	err := readJournal(path, func(l line) {
		s.memory.rev = max(s.memory.rev, l.Rev)
		switch {
		case l.Key == "" && l.Rev == 0:
			s.restore(l)
		case l.Key != "" && l.Create == 0:
			delete(live, l.Key)
		case l.Key != "":
			live[l.Key] = l.entry()
		}
	})
	if err != nil {
		return err
	}
	if s.memory.rev == 0 {
		s.memory.rev = 1 // as etcd: 0 means "the newest"
	} else {
		// The history is unknown: watches from earlier revisions have to restart.
		s.memory.compacted = s.memory.rev
	}
	keys := make([]string, 0, len(live))
	for key := range live {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		e := live[key]
		s.memory.insert(e)
		s.attach(e, nil)
	}
	if err := errors.Join(sweep(s.root), s.rewrite()); err != nil {
		return err
	}
	return s.compare(keys)
}

// compare applies the edits made while the files were not watched.
func (s *Store) compare(keys []string) error {
	for _, key := range keys {
		path, err := s.path(key)
		if err != nil {
			return err
		}
		if path != "" {
			s.files[path] = &file{key: key}
		}
	}
	paths, err := scan(s.root, ".")
	if err != nil {
		return err
	}
	for _, path := range paths {
		s.take(path)
	}
	// Files seen above are cheap to check again; the others are gone.
	for _, path := range slices.Collect(maps.Keys(s.files)) {
		s.take(path)
	}
	return nil
}

// scan lists the objects' files in a folder, definitions first, since they validate other
// objects.
func scan(root, folder string) ([]string, error) {
	var first, rest []string
	err := filepath.WalkDir(filepath.Join(root, folder), func(full string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		path, err := filepath.Rel(root, full)
		if err != nil {
			return err
		}
		path = filepath.ToSlash(path)
		switch {
		case path == ".":
		case d.IsDir() && hidden(path):
			return fs.SkipDir
		case d.IsDir() || !isObject(path):
		case strings.HasPrefix(path, "customresourcedefinitions/"):
			first = append(first, path)
		default:
			rest = append(rest, path)
		}
		return nil
	})
	return append(first, rest...), err
}

func hidden(path string) bool {
	return strings.HasPrefix(path, ".") || strings.Contains(path, "/.")
}

// isObject reports whether a file may be an object's, and not an editor's.
func isObject(path string) bool {
	return strings.HasSuffix(path, ".json") && strings.Contains(path, "/") && !hidden(path)
}

// below returns the known files in a folder; all if it is empty.
func (s *Store) below(folder string) []string {
	s.writing.Lock()
	defer s.writing.Unlock()
	var out []string
	for path := range s.files {
		if folder == "" || strings.HasPrefix(path, folder+"/") {
			out = append(out, path)
		}
	}
	return out
}

// rewrite replaces the journal by one of the current state.
func (s *Store) rewrite() error {
	lines := []line{{Rev: s.memory.rev}}
	for _, lease := range s.leases {
		lines = append(lines, lease.line())
	}
	s.memory.within("", "\x00", s.memory.rev, func(e *Entry) { lines = append(lines, lineOf(e)) })
	next, err := newJournal(filepath.Join(s.root, journalFile), lines)
	if err != nil {
		return err
	}
	if s.journal != nil {
		_ = s.journal.file.Close()
	}
	s.journal = next
	return nil
}

// sweep removes temporary files left by a crash.
func sweep(root string) error {
	return filepath.WalkDir(root, func(full string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), kinds.Temporary) {
			err = os.Remove(full)
		}
		return err
	})
}
