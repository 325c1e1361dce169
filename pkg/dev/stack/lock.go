package stack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lock makes sure that only one supervisor uses a folder. The kernel releases the lock when the
// process ends.
func lock(temp string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(temp, "dev.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the stack: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("a development stack runs already in %s: stop it with `make dev-down`", temp)
		}
		return nil, fmt.Errorf("lock the stack: %w", err)
	}
	return func() { f.Close() }, nil
}
