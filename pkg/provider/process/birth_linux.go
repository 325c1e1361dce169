package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// record makes the shell print its pid, the id of this boot, and its line of
// proc_pid_stat(5). It runs no other program.
const record = `read -r stat < "/proc/$$/stat" && read -r boot < ` + bootFile + ` &&
printf '%s\n%s\n%s\n' "$$" "$boot" "$stat"`

const bootFile = "/proc/sys/kernel/random/boot_id"

// parseStart reads what record printed after the pid. A start is counted in
// clock ticks since boot, so it says little without the boot's id.
func parseStart(text string) (string, bool) {
	boot, stat, ok := strings.Cut(text, "\n")
	if !ok || boot == "" {
		return "", false
	}
	_, ticks, ok := parseStat(stat)
	return boot + "/" + ticks, ok
}

// parseStat returns the third field of a stat line, the state, and the 22nd, the
// start. The second, the command in parentheses, may itself hold anything.
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

// startOf returns the start of the process that has a pid now, or errNoProcess.
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
		return "", fmt.Errorf("%s: %.200q is no such line", path, stat)
	case state == "Z" || state == "X":
		return "", errNoProcess
	default:
		return strings.TrimSpace(string(boot)) + "/" + ticks, nil
	}
}

// awaitExit returns once the process has ended, at once when it has already; or
// with ctx's error. It waits on a pidfd (pidfd_open(2)) through the runtime's
// poller, which costs no thread.
func awaitExit(ctx context.Context, b birth) error {
	fd, err := unix.PidfdOpen(b.pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return pollExit(ctx, b) // an old kernel, or no descriptors left
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
