package s3

import (
	"crypto/md5" // the etag of S3
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// privateDir is the folder of the store's own files. Keys in it are refused.
const privateDir = ".dev-s3"

// The kinds of the store's errors.
var (
	errNoKey     = errors.New("no such key")
	errKeyIsPath = errors.New("keys are paths here: a key can't be part of the path of another")
)

// store keeps objects as files that only their owner can read: they include secrets, sealed with a
// key that may be an example's. Its lock orders preconditions and renames, and is never held while
// waiting for a client.
type store struct {
	root *os.Root
	lock *os.File

	mu     sync.RWMutex
	hashes map[string]hashed
}

// hashed is the MD5 of a file as long as it is unchanged, so that a listing need not read every
// object.
type hashed struct {
	file fs.FileInfo
	sum  [md5.Size]byte
}

// stored is an object on disk.
type stored struct {
	key     string
	size    int64
	modTime time.Time
	sum     [md5.Size]byte
}

func openStore(dir string) (*store, error) {
	if err := os.MkdirAll(filepath.Join(dir, privateDir), 0o700); err != nil {
		return nil, err
	}
	lock, err := lockDir(filepath.Join(dir, privateDir))
	if err != nil {
		return nil, err
	}
	// Left over from an earlier process, and never acknowledged.
	tmp := filepath.Join(dir, privateDir, "tmp")
	if err := errors.Join(os.RemoveAll(tmp), os.Mkdir(tmp, 0o700)); err != nil {
		lock.Close()
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &store{root: root, lock: lock, hashes: map[string]hashed{}}, nil
}

// Close releases the directory.
func (s *store) Close() error { return errors.Join(s.root.Close(), s.lock.Close()) }

func checkKey(key string) error {
	if err := object.CheckKey(key); err != nil {
		return err
	}
	if first, _, _ := strings.Cut(key, "/"); first == privateDir {
		return fmt.Errorf("%w %q: %s is the store's own", object.ErrInvalidKey, key, privateDir)
	}
	return nil
}

// get reads a whole object. An open file is not affected by a rename.
func (s *store) get(key string) (stored, []byte, error) {
	f, err := s.root.Open(key)
	if isNotFound(err) {
		return stored{}, nil, errNoKey
	}
	if err != nil {
		return stored{}, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return stored{}, nil, err
	}
	if info.IsDir() {
		return stored{}, nil, errNoKey
	}
	body := make([]byte, info.Size())
	n, err := f.ReadAt(body, 0)
	if n != len(body) {
		return stored{}, nil, fmt.Errorf("read %s: %w", key, err)
	}
	return stored{key: key, size: info.Size(), modTime: info.ModTime(), sum: md5.Sum(body)}, body, nil
}

// put writes body if allowed returns nil. allowed gets the current object, or nil; no other write
// happens between its result and the write.
func (s *store) put(key string, body []byte, allowed func(*stored) error) error {
	tmp := path.Join(privateDir, "tmp", rand.Text())
	defer s.root.Remove(tmp) //nolint:errcheck // gone when all went well; else the next start removes it
	if err := s.writeFile(tmp, body); err != nil {
		return err
	}
	if err := s.place(tmp, key, allowed); err != nil {
		return err
	}
	return s.syncAbove(key)
}

func (s *store) writeFile(name string, body []byte) error {
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(body); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

func (s *store) place(tmp, key string, allowed func(*stored) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, _, err := s.get(key)
	switch {
	case err == nil:
		err = allowed(&now)
	case errors.Is(err, errNoKey):
		err = allowed(nil)
	}
	if err != nil {
		return err
	}
	if err := s.root.MkdirAll(path.Dir(key), 0o700); err != nil {
		return fmt.Errorf("%w: %w", errKeyIsPath, err)
	}
	if err := s.root.Rename(tmp, key); err != nil {
		s.prune(path.Dir(key))
		return fmt.Errorf("%w: %w", errKeyIsPath, err)
	}
	return nil
}

// syncAbove makes the directory entries of key durable. A folder that was deleted meanwhile needs
// no sync.
func (s *store) syncAbove(key string) error {
	for dir := path.Dir(key); ; dir = path.Dir(dir) {
		d, err := s.root.Open(dir)
		if err == nil {
			err = errors.Join(d.Sync(), d.Close())
		}
		if err != nil && !isNotFound(err) {
			return err
		}
		if dir == "." {
			return nil
		}
	}
}

func (s *store) delete(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := s.root.Lstat(key)
	if isNotFound(err) || err == nil && info.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.root.Remove(key); err != nil && !isNotFound(err) {
		return err
	}
	delete(s.hashes, key)
	s.prune(path.Dir(key))
	return s.syncAbove(key)
}

// prune removes empty folders, which would block a key of the same name.
func (s *store) prune(dir string) {
	for ; dir != "." && s.root.Remove(dir) == nil; dir = path.Dir(dir) {
	}
}

// keys returns the keys with a prefix, in ascending order.
func (s *store) keys(prefix string) ([]string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	start := path.Dir(prefix + "x") // the deepest folder that holds every match
	if start != "." && checkKey(start) != nil {
		return nil, nil // no key can begin with it
	}
	var keys []string
	err := fs.WalkDir(s.root.FS(), start, func(name string, d fs.DirEntry, err error) error {
		switch {
		case isNotFound(err):
			return nil
		case err != nil:
			return err
		case d.IsDir() && name == privateDir:
			return fs.SkipDir
		case d.Type().IsRegular() && strings.HasPrefix(name, prefix) && checkKey(name) == nil:
			keys = append(keys, name)
		}
		return nil
	})
	slices.Sort(keys) // a walk orders by folder: "a/b" before "a-b"
	return keys, err
}

// stat is get without the body, which is only read if the file has changed.
func (s *store) stat(key string) (stored, error) {
	info, err := s.root.Lstat(key)
	if isNotFound(err) {
		return stored{}, errNoKey
	}
	if err != nil {
		return stored{}, err
	}
	s.mu.RLock()
	h, known := s.hashes[key]
	s.mu.RUnlock()
	if known && os.SameFile(h.file, info) && h.file.ModTime().Equal(info.ModTime()) && h.file.Size() == info.Size() {
		return stored{key: key, size: info.Size(), modTime: info.ModTime(), sum: h.sum}, nil
	}
	o, _, err := s.get(key)
	if err != nil {
		return stored{}, err
	}
	// The hash is kept only if the file did not change while it was read.
	if again, err := s.root.Lstat(key); err == nil && os.SameFile(info, again) && again.ModTime().Equal(info.ModTime()) {
		s.mu.Lock()
		s.hashes[key] = hashed{file: again, sum: o.sum}
		s.mu.Unlock()
	}
	return o, nil
}

// isNotFound also recognizes the error of a path through a file.
func isNotFound(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || isNotDir(err)
}
