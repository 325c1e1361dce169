package dir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/object"
)

// Every path segment has a suffix that says what it is, so that "a" (a.o) and "a/b" (a.d/b.o)
// never collide, whatever the segments end in.
const (
	inner = ".d" // a directory of keys
	leaf  = ".o" // the folder of one key
)

// path returns the path of the key's folder.
func (s *Store) path(key string) string {
	return s.under(strings.Split(key, "/"), leaf)
}

func (s *Store) under(segments []string, last string) string {
	parts := make([]string, 0, len(segments)+1)
	parts = append(parts, s.root)
	for i, segment := range segments {
		suffix := inner
		if i == len(segments)-1 {
			suffix = last
		}
		parts = append(parts, segment+suffix)
	}
	return filepath.Join(parts...)
}

// List implements object.Store. The token is the last key of the previous page.
func (s *Store) List(ctx context.Context, prefix, token string) (object.Page, error) {
	if err := ctx.Err(); err != nil {
		return object.Page{}, fmt.Errorf("list %s: %w", prefix, unknown(err))
	}
	keys, err := s.keys(prefix)
	if err != nil {
		return object.Page{}, fmt.Errorf("list %s: %w", prefix, unknown(err))
	}
	slices.Sort(keys)
	var page object.Page
	size := object.PageSize(ctx, pageSize)
	for _, key := range keys {
		if key <= token {
			continue
		}
		if len(page.Objects) == size {
			page.Next = page.Objects[size-1].Key
			break
		}
		info, err := s.stat(ctx, key)
		if errors.Is(err, object.ErrNotFound) {
			continue
		}
		if err != nil {
			return object.Page{}, fmt.Errorf("list %s: %w", prefix, err)
		}
		page.Objects = append(page.Objects, info)
	}
	return page, nil
}

func (s *Store) stat(ctx context.Context, key string) (object.Info, error) {
	if err := ctx.Err(); err != nil {
		return object.Info{}, unknown(err)
	}
	f, err := openFolder(s.path(key))
	if err != nil {
		return object.Info{}, err
	}
	defer f.close()
	v, err := f.newest()
	if err != nil {
		return object.Info{}, err
	}
	if v.number == 0 {
		return object.Info{}, object.ErrNotFound
	}
	defer v.file.Close()
	return v.info(key), nil
}

// keys returns the keys of all folders, including dead ones, that begin with prefix.
func (s *Store) keys(prefix string) ([]string, error) {
	start, base := s.root, ""
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		if !beginsKeys(prefix[:i]) {
			return nil, nil
		}
		start, base = s.under(strings.Split(prefix[:i], "/"), inner), prefix[:i+1]
	}
	var keys []string
	err := walk(start, base, prefix, func(key string) { keys = append(keys, key) })
	return keys, err
}

func beginsKeys(folder string) bool { return object.CheckKey(folder) == nil }

// walk calls found with every key below path that begins with prefix. base is the common
// prefix of all keys below path.
func walk(path, base, prefix string, found func(string)) error {
	names, err := namesOf(path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if segment, ok := strings.CutSuffix(name, leaf); ok {
			if strings.HasPrefix(base+segment, prefix) {
				found(base + segment)
			}
			continue
		}
		segment, ok := strings.CutSuffix(name, inner)
		below := base + segment + "/"
		if !ok || !strings.HasPrefix(below, prefix) && !strings.HasPrefix(prefix, below) {
			continue
		}
		if err := walk(filepath.Join(path, name), below, prefix, found); err != nil {
			return err
		}
	}
	return nil
}

func namesOf(path string) ([]string, error) { return namesIn(os.Open(path)) }

// namesIn lists an opened directory; a missing one is empty.
func namesIn(d *os.File, err error) ([]string, error) {
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return names, err
}
