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

// birth tells one process from every other that ever had its pid.
type birth struct {
	pid   int
	start string // when it started, in the system's own terms
}

// parseBirth reads a pid file: the pid on the first line, then what the system
// says of the start. A file without its final newline is not complete.
func parseBirth(data string) (birth, bool) {
	if !strings.HasSuffix(data, "\n") {
		return birth{}, false
	}
	first, rest, _ := strings.Cut(strings.TrimSuffix(data, "\n"), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid <= 1 {
		return birth{}, false // 0, 1 and the negative mean many processes, or init
	}
	start, ok := parseStart(rest)
	return birth{pid: pid, start: start}, ok
}

// errNoProcess is startOf's for a pid that nothing has, or a dead process that waits to be
// reaped. Any other error says nothing of the process.
var errNoProcess = errors.New("no such process")

// alive reports whether the process may still be there. Where the system won't tell, as
// with no file descriptors left, it may: what is taken for dead loses its records.
func (b birth) alive() bool {
	there, err := b.there()
	return there || err != nil
}

// there reports whether the process is still there. The error is of a system that won't
// tell.
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

// checkSystem reports why processes can't be told apart here; nil when they can.
func checkSystem() error {
	if _, err := startOf(os.Getpid()); err != nil {
		return fmt.Errorf("processes can't be told apart here: %w (under systemd: want ProcSubset=all)", err)
	}
	return nil
}

// signal sends sig if the process is still there. The handle is taken before the
// look, so that where the system has process handles no other can be hit.
func (b birth) signal(sig syscall.Signal) error {
	p, err := os.FindProcess(b.pid)
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }() // a handle, not the process
	if there, err := b.there(); !there {
		return err
	}
	if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// kill ends the process and what it started in its own session's group.
func (b birth) kill() error {
	if there, err := b.there(); !there {
		return err
	}
	if err := syscall.Kill(-b.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// pollExit waits for the end of a process where nothing tells of it.
func pollExit(ctx context.Context, b birth) error {
	for b.alive() {
		if retry.Wait(ctx, 20*time.Millisecond) != nil {
			return ctx.Err()
		}
	}
	return nil
}
