package leaktest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func supported() bool { return true }

// check runs a command and checks what it leaves behind. It returns the exit code.
func check(cmd *exec.Cmd, said io.Writer, patience time.Duration) int {
	before, err := names(".")
	if err != nil {
		return failed(said, err)
	}
	place, err := newPlace()
	if err != nil {
		return failed(said, err)
	}
	code, left, err := place.run(cmd, patience)
	if err != nil {
		return failed(said, errors.Join(err, place.remove()))
	}
	found := processLines(left)
	if code == 0 {
		files, err := place.leaks(before)
		if err != nil {
			return failed(said, err)
		}
		found = append(found, files...)
	}
	if len(found) > 0 {
		fmt.Fprintln(said, "FAIL: the tests left behind:")
		for _, line := range found {
			fmt.Fprintln(said, "    "+line)
		}
	}
	if code == 0 {
		err = place.remove()
	} else {
		err = place.keep(said)
	}
	if err != nil {
		return failed(said, err)
	}
	if len(found) > 0 {
		return max(code, 1)
	}
	return code
}

func failed(said io.Writer, err error) int {
	fmt.Fprintln(said, "FAIL: check what the tests leave behind:", err)
	return 1
}

// run runs the command, then kills and returns the processes left.
func (p place) run(cmd *exec.Cmd, patience time.Duration) (code int, left []process, err error) {
	// Pdeathsig applies to the thread that starts the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, nil, fmt.Errorf("become the parent of orphans: %w", err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = p.env()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	ended, alone := make(chan syscall.WaitStatus, 1), make(chan struct{})
	go reap(cmd.Process.Pid, ended, alone)
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may have ended
		case status := <-ended:
			return exitCode(status), endAll(alone, patience), nil
		}
	}
}

// reap waits for every child, as init does: it sends the status of the first one to ended, and
// closes alone when no child is left.
func reap(first int, ended chan<- syscall.WaitStatus, alone chan<- struct{}) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // ECHILD
			close(alone)
			return
		case pid == first:
			ended <- status
		}
	}
}

// exitCode returns the status as a shell's exit code.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// endAll waits for the descendants of this process to end, kills the rest, and returns those
// killed.
func endAll(alone <-chan struct{}, patience time.Duration) (left []process) {
	select {
	case <-alone:
		return nil
	case <-time.After(patience):
	}
	for {
		now, err := descendants(os.Getpid())
		if err != nil {
			now = nil // the processes can't be listed
		}
		for _, p := range now {
			if !has(left, p.pid) {
				left = append(left, p)
			}
			_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have ended
		}
		select {
		case <-alone:
			return left
		case <-time.After(100 * time.Millisecond):
		}
	}
}
