package identity

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// maxFileSize is the maximum size of a file that is read, in bytes.
const maxFileSize = 1 << 20

// Files is a directory of small files, each written atomically.
type Files struct {
	Dir  string
	Mode fs.FileMode // of files other than private keys

	step func(op, name string) error // called before each change of the disk; for crash tests
}

// Path returns the path of a file.
func (f Files) Path(name string) string { return filepath.Join(f.Dir, name) }

// Read returns nil without an error if the file does not exist.
func (f Files) Read(name string) ([]byte, error) {
	file, err := os.Open(f.Path(name))
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
		return nil, fmt.Errorf("read %s: longer than %d bytes", f.Path(name), maxFileSize)
	}
	return data, nil
}

// Write replaces a file, durably.
func (f Files) Write(name string, data []byte, mode fs.FileMode) error {
	if err := f.write(name, data, mode, (*os.File).Sync); err != nil {
		return err
	}
	return f.sync()
}

// WriteFast replaces a file that need not survive a crash of the machine.
func (f Files) WriteFast(name string, data []byte) error {
	return f.write(name, data, f.Mode, func(*os.File) error { return nil })
}

func (f Files) write(name string, data []byte, mode fs.FileMode, sync func(*os.File) error) error {
	if err := f.before("create", name); err != nil {
		return err
	}
	temp, err := os.CreateTemp(f.Dir, "."+name+".*")
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	if err = errors.Join(err, temp.Chmod(mode), sync(temp), temp.Close()); err != nil {
		err = fmt.Errorf("write %s: %w", f.Path(name), err)
	} else if err = f.before("rename", name); err == nil {
		err = os.Rename(temp.Name(), f.Path(name))
	}
	if err != nil {
		os.Remove(temp.Name())
	}
	return err
}

// Rename renames a file, replacing the target, durably.
func (f Files) Rename(from, to string) error {
	if err := f.before("rename", to); err != nil {
		return err
	}
	if err := os.Rename(f.Path(from), f.Path(to)); err != nil {
		return err
	}
	return f.sync()
}

// SetAside moves files and folders into a subfolder, durably and in order. It creates the
// folder, readable by the owner only, and skips missing files.
func (f Files) SetAside(folder string, names []string) error {
	if err := f.before("mkdir", folder); err != nil {
		return err
	}
	if err := os.MkdirAll(f.Path(folder), 0o700); err != nil {
		return err
	}
	for _, name := range names {
		if err := f.before("rename", name); err != nil {
			return err
		}
		err := os.Rename(f.Path(name), filepath.Join(f.Path(folder), name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return errors.Join(Files{Dir: f.Path(folder), step: f.step}.sync(), f.sync())
}

// Remove removes a file, durably. A missing one is no error.
func (f Files) Remove(name string) error {
	if err := f.before("remove", name); err != nil {
		return err
	}
	if err := os.Remove(f.Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return f.sync()
}

// sync makes renames and removals in the directory durable.
func (f Files) sync() error {
	if err := f.before("sync", "."); err != nil {
		return err
	}
	dir, err := os.Open(f.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func (f Files) before(op, name string) error {
	if f.step == nil {
		return nil
	}
	return f.step(op, name)
}
