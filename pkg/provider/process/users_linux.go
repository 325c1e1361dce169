package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// processes returns all running processes by PID.
func processes() (map[int]credentials, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := map[int]credentials{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		c, err := credentialsOf(pid)
		switch {
		case errors.Is(err, errNoProcess): // just ended
		case err != nil:
			return nil, err
		default:
			all[pid] = c
		}
	}
	return all, nil
}

// credentialsOf returns the credentials of a running process, or errNoProcess.
func credentialsOf(pid int) (credentials, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/status"
	text, err := os.ReadFile(path)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return credentials{}, errNoProcess
	}
	if err != nil {
		return credentials{}, err
	}
	c, dead, ok := parseStatus(string(text))
	switch {
	case !ok:
		return credentials{}, fmt.Errorf("%s: %.200q has no users", path, text)
	case dead:
		return credentials{}, errNoProcess
	default:
		return c, nil
	}
}

// parseStatus parses proc_pid_status(5). A zombie is dead only if it has no other threads, as
// those continue when the first has ended.
func parseStatus(status string) (c credentials, dead, ok bool) {
	fields := map[string][]string{}
	for line := range strings.Lines(status) {
		name, rest, _ := strings.Cut(line, ":")
		if _, known := fields[name]; !known {
			fields[name] = strings.Fields(rest)
		}
	}
	users, state, threads := fields["Uid"], fields["State"], fields["Threads"]
	if len(users) != 4 || len(state) == 0 || len(threads) == 0 {
		return credentials{}, false, false
	}
	for n, to := range []*uint32{&c.real, &c.effective, &c.saved, &c.files} {
		user, err := strconv.ParseUint(users[n], 10, 32)
		if err != nil {
			return credentials{}, false, false
		}
		*to = uint32(user)
	}
	dead = (state[0] == "Z" || state[0] == "X") && (threads[0] == "0" || threads[0] == "1")
	return c, dead, true
}
