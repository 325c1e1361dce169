// Package store is what etcd is to a kube-apiserver: keys with revisions, kept as
// files that people read and edit.
//
// An object is a JSON file in the folder of its resource. All else, revisions above
// all, is in a journal beside them. A write puts the file in place first and then adds
// its line to the journal; only then does anybody see it. A file that the journal
// does not know is an edit by hand, be it that somebody made it or that a crash came
// between the two: either way it becomes the next revision. So no crash loses a write
// that was acknowledged, and none happens twice.
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

// Config is what a store is opened with.
type Config struct {
	// Root is the folder of the files.
	Root string
	// History is how many revisions are kept at most; 0: 10,000. Who asks for an older
	// one is told that it has been compacted, and begins again.
	History int
	Log     *slog.Logger
	Now     func() time.Time
}

// Store holds the keys. Close it, and one process may have it at a time.
type Store struct {
	root    string
	history int
	log     *slog.Logger
	now     func() time.Time
	kinds   *kinds.Kinds
	lock    *os.File

	// writing is held by whatever makes the next revision, files and journal
	// included. Reads don't wait for the disk: they need mu alone.
	writing  sync.Mutex
	journal  *journal
	files    map[string]*file // by path, relative and with slashes
	problems *problems
	leases   map[int64]*Lease

	mu      sync.RWMutex
	memory  *memory
	changed chan struct{}
}

// Open reads a folder. Edits that were made while nobody served it become revisions.
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

// Close gives the folder to the next process.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return errors.Join(s.journal.file.Close(), s.lock.Close())
}

// acquire keeps a second process out until this one ends, however it does.
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

// definition is how the kinds ask for a CustomResourceDefinition.
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
