package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// record returns the pid file of a process: its PID, and its start time in seconds;
// errNoProcess if it does not exist.
func record(pid int) (string, error) {
	start, err := startOf(pid)
	if err != nil {
		return "", err
	}
	seconds, err := strconv.ParseInt(start, 10, 64)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d\n%s\n", pid, time.Unix(seconds, 0).UTC().Format(time.ANSIC)), nil
}

// starter returns the process that was started with the life lock and leads its session; 0 if
// there is none. Only lsof can tell.
func starter(life *os.File) (pid int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "/usr/sbin/lsof", "-t", life.Name()).Output()
	if err != nil && len(out) == 0 {
		return 0, nil
	}
	for _, text := range strings.Fields(string(out)) {
		candidate, err := strconv.Atoi(text)
		if err != nil || candidate == os.Getpid() {
			continue
		}
		if sid, err := unix.Getsid(candidate); err == nil && sid == candidate {
			return candidate, nil
		}
	}
	return 0, nil
}

// parseStart parses the part of record after the PID.
func parseStart(text string) (string, bool) {
	at, err := time.Parse(time.ANSIC, strings.TrimSpace(text))
	if err != nil {
		return "", false
	}
	return strconv.FormatInt(at.Unix(), 10), true
}

const (
	zombie    = 5         // SZOMB of sys/proc.h
	openFiles = "/dev/fd" // the numbers of this process's descriptors
)

// startOf returns the start time of the process with a PID, or errNoProcess.
func startOf(pid int) (start string, err error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	switch {
	case errors.Is(unix.Kill(pid, 0), unix.ESRCH): // sysctl returns another error
		return "", errNoProcess
	case err != nil:
		return "", err
	case int(info.Proc.P_pid) != pid || info.Proc.P_stat == zombie:
		return "", errNoProcess
	default:
		return strconv.FormatInt(int64(info.Proc.P_starttime.Sec), 10), nil
	}
}

// awaitExit returns when the process has ended, or with ctx's error.
func awaitExit(ctx context.Context, b birth) error { return pollExit(ctx, b) }
