package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// maxFileSize is the longest file that is read, in bytes.
const maxFileSize = 1 << 20

// store is the identity directory.
type store struct {
	dir  string
	mode fs.FileMode
}

func (s store) path(name string) string { return filepath.Join(s.dir, name) }

// read returns nil without an error for a file that is not there.
func (s store) read(name string) ([]byte, error) {
	file, err := os.Open(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("read %s: longer than %d bytes", s.path(name), maxFileSize)
	}
	return data, nil
}

// write replaces a file whole or not at all. With durable it outlives a crash of
// the machine from the moment write returns.
func (s store) write(name string, data []byte, mode fs.FileMode, durable bool) error {
	temp, err := os.CreateTemp(s.dir, "."+name+".*")
	if err != nil {
		return err
	}
	if err := fill(temp, data, mode, durable); err != nil {
		os.Remove(temp.Name())
		return fmt.Errorf("write %s: %w", s.path(name), err)
	}
	if err := os.Rename(temp.Name(), s.path(name)); err != nil {
		os.Remove(temp.Name())
		return err
	}
	if durable {
		return s.sync()
	}
	return nil
}

func fill(file *os.File, data []byte, mode fs.FileMode, durable bool) error {
	defer file.Close()
	if err := file.Chmod(mode); err != nil {
		return err
	}
	if _, err := file.Write(data); err != nil {
		return err
	}
	if durable {
		if err := file.Sync(); err != nil {
			return err
		}
	}
	return file.Close()
}

func (s store) remove(name string) error {
	err := os.Remove(s.path(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.sync()
}

// sync makes renames and removals in the directory durable.
func (s store) sync() error {
	dir, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// mustRead is read where a file that is not there is an error.
func (s store) mustRead(name string) ([]byte, error) {
	data, err := s.read(name)
	if err == nil && data == nil {
		err = &fs.PathError{Op: "open", Path: s.path(name), Err: fs.ErrNotExist}
	}
	return data, err
}
