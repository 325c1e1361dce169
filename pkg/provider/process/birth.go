package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// birth identifies a process, also if its PID is reused.
type birth struct {
	pid   int
	start string // start time in the system's format
}

// parseBirth parses a pid file: the PID on the first line, then the system's start time. A file
// without its final newline is incomplete.
func parseBirth(data string) (birth, bool) {
	if !strings.HasSuffix(data, "\n") {
		return birth{}, false
	}
	first, rest, _ := strings.Cut(strings.TrimSuffix(data, "\n"), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid <= 1 {
		return birth{}, false // 0, 1 and negative numbers mean several processes or init
	}
	start, ok := parseStart(rest)
	return birth{pid: pid, start: start}, ok
}

// errNoProcess is returned by startOf if the PID does not exist or is a zombie. Any other error
// says nothing about the process.
var errNoProcess = errors.New("no such process")

// alive reports whether the process may still exist. If that can't be determined, as without
// free file descriptors, it returns true: the records of a dead process are removed.
func (b birth) alive() bool {
	there, err := b.there()
	return there || err != nil
}

// there reports whether the process still exists, with an error if that can't be determined.
func (b birth) there() (bool, error) {
	start, err := startOf(b.pid)
	switch {
	case errors.Is(err, errNoProcess):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at process %d: %w", b.pid, err)
	default:
		return start == b.start, nil
	}
}

// checkSystem returns an error if processes can't be identified on this system.
func checkSystem() error {
	if _, err := startOf(os.Getpid()); err != nil {
		return fmt.Errorf("processes can't be identified on this system: %w (systemd units need ProcSubset=all)", err)
	}
	return nil
}

// signal sends sig if the process still exists. It opens the process handle before the check,
// so that on systems with such handles no other process can be hit.
func (b birth) signal(sig syscall.Signal) error {
	p, err := os.FindProcess(b.pid)
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }() // releases the handle, not the process
	if there, err := b.there(); !there {
		return err
	}
	if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// kill kills the process and the process group of its session.
func (b birth) kill() error {
	if there, err := b.there(); !there {
		return err
	}
	if err := syscall.Kill(-b.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// pollExit polls for the end of a process, on systems that don't report it.
func pollExit(ctx context.Context, b birth) error {
	for b.alive() {
		if retry.Wait(ctx, 20*time.Millisecond) != nil {
			return ctx.Err()
		}
	}
	return nil
}
