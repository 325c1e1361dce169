package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// disk is the receive directory during one operation. It is opened each time, because the
// directory may have been removed and recreated.
type disk struct {
	root *os.Root
	step func(op, name string) error
}

// before is called before every change of the disk.
func (k disk) before(op, name string) error {
	if k.step == nil {
		return nil
	}
	return k.step(op, name)
}

// close closes the directory; nothing was written through the handle.
func (k disk) close() { _ = k.root.Close() }

func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

func (k disk) mkdir(name string) error {
	if err := k.before("mkdir", name); err != nil {
		return err
	}
	return k.root.Mkdir(name, 0o700)
}

// create durably writes a file that must not exist, with exactly this mode.
func (k disk) create(name string, content []byte, mode fs.FileMode) error {
	if err := k.before("create", name); err != nil {
		return err
	}
	file, err := k.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Chmod(mode); err != nil { // override the umask
		return err
	}
	if err := k.before("write", name); err != nil {
		return err
	}
	if _, err := file.Write(content); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return file.Close()
}

func (k disk) link(from, to string) error {
	if err := k.before("link", to); err != nil {
		return err
	}
	return k.root.Link(from, to)
}

func (k disk) rename(from, to string) error {
	if err := k.before("rename", to); err != nil {
		return err
	}
	return k.root.Rename(from, to)
}

// remove removes a file or a link, never a directory. A missing one is no error.
func (k disk) remove(name string) error {
	info, err := k.root.Lstat(name)
	if err != nil && absent(err) || err == nil && info.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	if err := k.before("remove", name); err != nil {
		return err
	}
	if err := k.root.Remove(name); err != nil && !absent(err) {
		return err
	}
	return nil
}

// clear removes one of the hidden folders with everything in it.
func (k disk) clear(name string) error {
	if _, err := k.root.Lstat(name); absent(err) {
		return nil
	}
	if err := k.before("clear", name); err != nil {
		return err
	}
	return k.root.RemoveAll(name)
}

// sync makes changes of names in a directory durable.
func (k disk) sync(dir string) error {
	if err := k.before("sync", dir); err != nil {
		return err
	}
	file, err := k.root.Open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}

func (k disk) exists(name string) bool {
	_, err := k.root.Lstat(name)
	return err == nil
}

var errTooLong = errors.New("too long to be a file of a set")

// read reads a regular file of at most most bytes. Nothing else is opened, and opening does
// not block: a FIFO in place of a file must not block the agent.
func (k disk) read(name string, most int64) ([]byte, error) {
	file, err := k.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrInvalid}
	}
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(data)) > most {
		err = &fs.PathError{Op: "read", Path: name, Err: errTooLong}
	}
	return data, err
}
