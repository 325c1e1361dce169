// Package dir stores objects in a directory, for one machine or a shared file system. Any
// number of processes may use one directory concurrently, without locks: a stopped process
// blocks no other.
//
// Each key has its own folder, and each write is a file in it, named by its version:
// 0000000000000007. A write puts its body into a temporary file, then link(2)s it to the
// version after the one it saw. link fails if the name exists, so of several writers that saw
// the same version one succeeds. The highest version is the object; a few earlier ones are
// kept, and older ones are removed in ascending order.
//
// A folder is live while it has the file "live". It is created with live and version 1 by the
// rename(2) of a complete temporary folder, which fails if a non-empty folder has the name: so
// one of several creators succeeds. It dies by the unlink of live, permanently: what a slow
// writer still links into a dead folder is never read, and the next creator removes it.
//
// A slow writer may find its version's name free because that version has been removed
// already. After linking, it therefore checks whether the version it replaced still exists
// (removal is ascending, so its own name was never used before), and if not, whether the next
// version names it as its predecessor.
//
// Bodies and directory entries are synced before Put returns. A kill at any point leaves the old
// object or the new one, and at worst temporary files, which later calls remove. The file system
// must be case-sensitive.
package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

const (
	pageSize = 1000

	// leftover is the age at which a temporary file has no running owner.
	leftover = time.Hour
)

// Config is the configuration of a Store.
type Config struct {
	Root string // the directory; created if absent
}

// Store implements object.Store.
type Store struct {
	root string
	tmp  string
}

var _ object.Store = (*Store)(nil)

// errMoved means that another writer was first and that this write, which has changed nothing,
// has to be retried.
var errMoved = errors.New("another writer was first")

// New opens the directory, and removes temporary files older than leftover.
func New(cfg Config) (*Store, error) {
	if cfg.Root == "" {
		return nil, errors.New("open object directory: Root is empty, want a path")
	}
	s := &Store{root: cfg.Root, tmp: filepath.Join(cfg.Root, "tmp")}
	if err := os.MkdirAll(s.tmp, 0o700); err != nil {
		return nil, fmt.Errorf("open object directory: %w", err)
	}
	entries, err := os.ReadDir(s.tmp)
	if err != nil {
		return nil, fmt.Errorf("open object directory: %w", err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > leftover {
			os.RemoveAll(filepath.Join(s.tmp, e.Name()))
		}
	}
	return s, nil
}

// Get implements object.Store.
func (s *Store) Get(ctx context.Context, key string) (object.Object, error) {
	if err := begin(ctx, key); err != nil {
		return object.Object{}, fmt.Errorf("get %s: %w", key, err)
	}
	o, err := s.get(key)
	if err != nil {
		return object.Object{}, fmt.Errorf("get %s: %w", key, err)
	}
	return o, nil
}

func (s *Store) get(key string) (object.Object, error) {
	f, err := openFolder(s.path(key))
	if err != nil {
		return object.Object{}, err
	}
	defer f.close()
	v, err := f.newest()
	if err != nil {
		return object.Object{}, err
	}
	if v.number == 0 {
		return object.Object{}, object.ErrNotFound
	}
	defer v.file.Close()
	body, err := v.body()
	if err != nil {
		return object.Object{}, unknown(err)
	}
	return object.Object{Info: v.info(key), Body: body}, nil
}

// Put implements object.Store.
func (s *Store) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	for {
		if err := begin(ctx, key); err != nil {
			return "", fmt.Errorf("put %s: %w", key, err)
		}
		etag, err := s.put(s.path(key), body, pre)
		if err == nil {
			return etag, nil
		}
		if !errors.Is(err, errMoved) {
			return "", fmt.Errorf("put %s: %w", key, err)
		}
	}
}

func (s *Store) put(path string, body []byte, pre object.Precondition) (object.ETag, error) {
	f, err := openFolder(path)
	if err != nil {
		return "", err
	}
	defer f.close()
	old, err := f.newest()
	if err != nil {
		return "", err
	}
	defer old.file.Close()
	if !pre.Holds(old.etag()) {
		return "", object.ErrConflict
	}
	next := version{number: old.number + 1, nonce: rand.Text(), prev: old.nonce}
	if old.number == 0 {
		err = s.create(f, path, next, body)
	} else {
		err = f.replace(next, body)
	}
	if err != nil {
		return "", err
	}
	return next.etag(), nil
}

// create creates the key's folder. f is the existing folder, which is dead or absent.
func (s *Store) create(f folder, path string, v version, body []byte) error {
	if err := f.clear(); err != nil {
		return unknown(err)
	}
	born := filepath.Join(s.tmp, v.nonce)
	defer os.RemoveAll(born)
	if err := s.makeFolder(born, v, body); err != nil {
		return unknown(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return moved(err)
	}
	os.Remove(path) // succeeds only for an empty folder, which is dead
	if err := os.Rename(born, path); err != nil {
		return moved(err)
	}
	if err := s.syncAbove(path); err != nil {
		return unknown(err)
	}
	return nil
}

func (s *Store) makeFolder(path string, v version, body []byte) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	f, err := openFolder(path)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.write(v.name(), v.header(), body); err != nil {
		return err
	}
	if err := f.write(live); err != nil {
		return err
	}
	return f.sync()
}

// Delete implements object.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := begin(ctx, key); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	path := s.path(key)
	f, err := openFolder(path)
	if err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	defer f.close()
	if err := f.kill(); err != nil {
		return fmt.Errorf("delete %s: %w", key, unknown(err))
	}
	if f.clear() == nil {
		s.prune(path)
	}
	return nil
}

// prune removes path and its parents while they are empty; a concurrent creator recreates its
// parent.
func (s *Store) prune(path string) {
	for ; path != s.root; path = filepath.Dir(path) {
		if os.Remove(path) != nil {
			return
		}
	}
}

// syncAbove syncs the directories above path, including entries that another process has created
// and not yet synced.
func (s *Store) syncAbove(path string) error {
	for path != s.root {
		path = filepath.Dir(path)
		if err := syncDir(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func begin(ctx context.Context, key string) error {
	if err := object.CheckKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return unknown(err)
	}
	return nil
}

func unknown(err error) error { return fmt.Errorf("%w: %w", object.ErrUnknown, err) }
