package process

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// keepInherited makes the descriptors above 2 that this process inherited from what started it,
// such as a shell's redirection or the lock of flock(1), close on exec, so that no agent inherits
// them. Once is enough, before the first agent starts: whatever this process opens later closes
// on exec, as Go opens everything so. Files that are passed to a child (exec.Cmd.ExtraFiles) are
// duplicated there, and are not affected.
func keepInherited() error {
	dir, err := os.Open(openFiles)
	if err != nil {
		return fmt.Errorf("list the open files: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("list the open files: %w", err)
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil && fd > 2 {
			unix.CloseOnExec(fd) // fails only if it was closed meanwhile
		}
	}
	return nil
}
