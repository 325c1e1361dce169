package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// record returns the pid file of a process: its PID, the boot ID, and its line of
// proc_pid_stat(5); errNoProcess if it does not exist.
func record(pid int) (string, error) {
	boot, err := os.ReadFile(bootFile)
	if err != nil {
		return "", err
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return "", errNoProcess
	}
	if err != nil {
		return "", err
	}
	// The command name, in parentheses, may contain anything, including newlines.
	line := strings.ReplaceAll(strings.TrimSpace(string(stat)), "\n", " ")
	return fmt.Sprintf("%d\n%s\n%s\n", pid, strings.TrimSpace(string(boot)), line), nil
}

// starter returns the process that was started with the life lock as descriptor 3 and leads its
// session; 0 if there is none.
func starter(life *os.File) (pid int, err error) {
	want, err := life.Stat()
	if err != nil {
		return 0, err
	}
	files, err := filepath.Glob("/proc/[0-9]*/fd/3")
	if err != nil {
		return 0, err
	}
	first := uint64(0)
	for _, file := range files {
		has, err := os.Stat(file)
		if err != nil || !os.SameFile(has, want) {
			continue // another user's, or ended
		}
		candidate, _ := strconv.Atoi(strings.Split(file, "/")[2])
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(candidate) + "/stat")
		_, ticks, ok := parseStat(string(stat))
		if sid, sidErr := unix.Getsid(candidate); err != nil || !ok || sidErr != nil || sid != candidate || candidate == os.Getpid() {
			continue
		}
		// Processes started by the agent may hold it too, and lead a session of their own.
		if began, _ := strconv.ParseUint(ticks, 10, 64); pid == 0 || began < first {
			pid, first = candidate, began
		}
	}
	return pid, nil
}

const (
	bootFile  = "/proc/sys/kernel/random/boot_id"
	openFiles = "/proc/self/fd" // the numbers of this process's descriptors
)

// parseStart parses the part of record after the PID. The start time is in clock ticks since
// boot, so it needs the boot ID.
func parseStart(text string) (string, bool) {
	boot, stat, ok := strings.Cut(text, "\n")
	if !ok || boot == "" {
		return "", false
	}
	_, ticks, ok := parseStat(stat)
	return boot + "/" + ticks, ok
}

// parseStat returns the third field of a stat line, the state, and the 22nd, the start time.
// The second, the command in parentheses, may contain anything.
func parseStat(stat string) (state, ticks string, ok bool) {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return "", "", false
	}
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 20 {
		return "", "", false
	}
	if _, err := strconv.ParseUint(fields[19], 10, 64); err != nil {
		return "", "", false
	}
	return fields[0], fields[19], true
}

// startOf returns the start time of the process with a PID, or errNoProcess.
func startOf(pid int) (start string, err error) {
	boot, err := os.ReadFile(bootFile)
	if err != nil {
		return "", err
	}
	path := "/proc/" + strconv.Itoa(pid) + "/stat"
	stat, err := os.ReadFile(path)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return "", errNoProcess
	}
	if err != nil {
		return "", err
	}
	state, ticks, ok := parseStat(string(stat))
	switch {
	case !ok:
		return "", fmt.Errorf("%s: %.200q is not a valid stat line", path, stat)
	case state == "Z" || state == "X":
		return "", errNoProcess
	default:
		return strings.TrimSpace(string(boot)) + "/" + ticks, nil
	}
}

// awaitExit returns when the process has ended, or with ctx's error. It waits on a pidfd
// (pidfd_open(2)) through the runtime's poller, without blocking a thread.
func awaitExit(ctx context.Context, b birth) error {
	fd, err := unix.PidfdOpen(b.pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return pollExit(ctx, b) // old kernel, or out of file descriptors
	}
	handle := os.NewFile(uintptr(fd), "pidfd")
	defer handle.Close()
	if !b.alive() {
		return nil
	}
	conn, err := handle.SyscallConn()
	if err != nil {
		return pollExit(ctx, b)
	}
	release := context.AfterFunc(ctx, func() { _ = handle.Close() })
	defer release()
	err = conn.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		return err == nil && n > 0
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return pollExit(ctx, b)
	}
	return nil
}
