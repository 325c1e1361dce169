package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nstance/nstance/pkg/retry"
)

// maxRecord exceeds the size of any pid file, in bytes.
const maxRecord = 4096

// note is a pid file with preallocated disk space, so that a started process can be recorded
// even if the disk is full.
type note struct {
	f    folder
	file *os.File
}

func (f folder) reserve() (*note, error) {
	file, err := os.CreateTemp(f.path, ".tmp-*") // mode 0600
	if err != nil {
		return nil, err
	}
	n := &note{f, file}
	if _, err := file.Write(bytes.Repeat([]byte{' '}, maxRecord)); err != nil {
		n.drop()
		return nil, err
	}
	return n, nil
}

// place writes the record of a process and moves the file into place.
func (n *note) place(pid int) error {
	text, err := record(pid)
	if err != nil {
		return err
	}
	if len(text) > maxRecord {
		return fmt.Errorf("the record of process %d has %d bytes, want %d at most", pid, len(text), maxRecord)
	}
	_, err = n.file.WriteAt([]byte(text), 0)
	if err == nil {
		err = n.file.Truncate(int64(len(text)))
	}
	if err == nil {
		err = os.Rename(n.file.Name(), n.f.file(pidFile))
	}
	return err
}

// drop removes the file if it was not placed.
func (n *note) drop() {
	_ = n.file.Close()
	_ = os.Remove(n.file.Name()) // fails if it was placed
}

// live takes the life lock, which the folder's process holds until it ends.
func (f folder) live(ctx context.Context) (*os.File, error) {
	file, err := os.OpenFile(f.file(lifeFile), os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(ctx, file); err != nil {
		_ = file.Close() // nothing was written to it
		return nil, err
	}
	return file, nil
}

// lives reports whether the life lock is held. The caller closes the lock's file, which is nil
// if it does not exist.
func (f folder) lives() (file *os.File, held bool, err error) {
	file, err = os.Open(f.file(lifeFile))
	if absent(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return file, true, nil
	}
	return file, false, err
}

// adopt records a process whose server died before it could. The caller holds the folder's
// lock.
func (f folder) adopt(ctx context.Context) error {
	for {
		if _, born, err := f.birth(); born || err != nil {
			return err
		}
		pid, held, err := f.holder()
		if err != nil || !held {
			return err
		}
		if pid != 0 {
			n, err := f.reserve()
			if err != nil {
				return err
			}
			err = n.place(pid)
			n.drop()
			if !errors.Is(err, errNoProcess) {
				return err
			}
		}
		// It is being started, or has just ended.
		if retry.Wait(ctx, lockPoll) != nil {
			return fmt.Errorf("%s is held by a process that was not started by this provider: %w", f.file(lifeFile), ctx.Err())
		}
	}
}

// holder returns the process that was started with the life lock; 0 if it is not found.
func (f folder) holder() (pid int, held bool, err error) {
	life, held, err := f.lives()
	if life == nil {
		return 0, false, err
	}
	defer life.Close()
	if err != nil || !held {
		return 0, held, err
	}
	pid, err = starter(life)
	return pid, true, err
}
