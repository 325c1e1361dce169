package process

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// record makes the shell print its pid and when it started, to the second.
const record = `start=$(LC_ALL=C TZ=UTC ps -o lstart= -p "$$") && printf '%s\n%s\n' "$$" "$start"`

// parseStart reads what record printed after the pid.
func parseStart(text string) (string, bool) {
	at, err := time.Parse(time.ANSIC, strings.TrimSpace(text))
	if err != nil {
		return "", false
	}
	return strconv.FormatInt(at.Unix(), 10), true
}

const zombie = 5 // SZOMB of sys/proc.h

// startOf returns the start of the process that has a pid now, or errNoProcess.
func startOf(pid int) (start string, err error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	switch {
	case errors.Is(unix.Kill(pid, 0), unix.ESRCH): // of which sysctl says something else
		return "", errNoProcess
	case err != nil:
		return "", err
	case int(info.Proc.P_pid) != pid || info.Proc.P_stat == zombie:
		return "", errNoProcess
	default:
		return strconv.FormatInt(int64(info.Proc.P_starttime.Sec), 10), nil
	}
}

// awaitExit returns once the process has ended, or with ctx's error.
func awaitExit(ctx context.Context, b birth) error { return pollExit(ctx, b) }
