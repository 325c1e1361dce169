// Package store is an etcd-like store for a kube-apiserver: keys with revisions, stored as
// files that users can read and edit.
//
// An object is a JSON file in the folder of its resource. Everything else, mainly revisions,
// is in a journal next to them. A write replaces the file first and then appends to the
// journal; only then is it visible. A file that differs from the journal counts as a manual
// edit, even if a crash came between the two steps: either way it becomes the next revision.
// So a crash loses no acknowledged write, and repeats none.
package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/nstance/nstance/cmd/dev-k8s/kinds"
)

// Config configures a store.
type Config struct {
	// Root is the folder of the files.
	Root string
	// History is the maximum number of revisions kept; 0: 10,000. A watch from an older one
	// gets ErrCompacted, and restarts.
	History int
	Log     *slog.Logger
	Now     func() time.Time
}

// Store holds the keys. It must be closed, and only one process may open a folder at a time.
type Store struct {
	root    string
	history int
	log     *slog.Logger
	now     func() time.Time
	kinds   *kinds.Kinds
	lock    *os.File

	// writing is held while the next revision is made, including files and journal. Reads
	// don't wait for the disk: they need only mu.
	writing  sync.Mutex
	journal  *journal
	files    map[string]*file // by path: relative, with slashes
	problems *problems
	leases   map[int64]*Lease

	mu      sync.RWMutex
	memory  *memory
	changed chan struct{}
}

// Open opens a folder. Edits made while it was not served become revisions.
func Open(cfg Config) (*Store, error) {
	if cfg.History == 0 {
		cfg.History = 10_000
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(cfg.Root, 0o700); err != nil {
		return nil, err
	}
	lock, err := acquire(filepath.Join(cfg.Root, ".lock"))
	if err != nil {
		return nil, err
	}
	s := &Store{
		root: cfg.Root, history: cfg.History, log: cfg.Log, now: cfg.Now, lock: lock,
		files: map[string]*file{}, leases: map[int64]*Lease{},
		problems: &problems{file: filepath.Join(cfg.Root, problemsFile), log: cfg.Log, why: map[string]string{}},
		memory:   newMemory(), changed: make(chan struct{}),
	}
	if s.kinds, err = kinds.Open(cfg.Root, s.definition); err == nil {
		err = s.load()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", cfg.Root, err), lock.Close())
	}
	return s, nil
}

// Close releases the folder for the next process.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	// A child between fork and exec has the lock's file too, so closing it here releases nothing.
	unlocked := syscall.Flock(int(s.lock.Fd()), syscall.LOCK_UN)
	return errors.Join(s.journal.file.Close(), unlocked, s.lock.Close())
}

// acquire locks out other processes until this one ends, even by a crash.
func acquire(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: another process serves this folder: %w", path, err), f.Close())
	}
	return f, nil
}

// definition returns a CustomResourceDefinition for validation.
func (s *Store) definition(name string) ([]byte, int64) {
	id := kinds.ID{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions", Name: name}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.memory.now(id.Key()); e != nil {
		return e.Value, e.Mod
	}
	return nil, 0
}

func newUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
