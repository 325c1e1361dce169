package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// disk is the receive directory for the length of one operation. It is opened
// anew each time, because somebody may have removed the directory and made
// another.
type disk struct {
	root *os.Root
	step func(op, name string) error
}

// before is called ahead of everything that changes the disk.
func (k disk) before(op, name string) error {
	if k.step == nil {
		return nil
	}
	return k.step(op, name)
}

// close gives back the directory's handle; nothing was written through it.
func (k disk) close() { _ = k.root.Close() }

func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

func (k disk) mkdir(name string) error {
	if err := k.before("mkdir", name); err != nil {
		return err
	}
	return k.root.Mkdir(name, 0o700)
}

// create writes a file that must not be there yet, with exactly mode, to the
// disk itself.
func (k disk) create(name string, content []byte, mode fs.FileMode) error {
	if err := k.before("create", name); err != nil {
		return err
	}
	file, err := k.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Chmod(mode); err != nil { // the umask has no say
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

// remove removes a file or a link, never a directory; one that is absent is fine.
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

// clear removes everything below and with name, which is one of our own folders.
func (k disk) clear(name string) error {
	if _, err := k.root.Lstat(name); absent(err) {
		return nil
	}
	if err := k.before("clear", name); err != nil {
		return err
	}
	return k.root.RemoveAll(name)
}

// sync makes what happened to the names in a directory outlive a power cut.
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

// read reads a regular file of at most most bytes. Nothing else is opened, and
// opening does not wait: a FIFO in a file's place must not hold us up.
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
