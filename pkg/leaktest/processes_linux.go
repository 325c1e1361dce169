package leaktest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// process is a leaked process.
type process struct {
	pid     int
	command string // with its arguments
}

const longest = 200

func processLines(left []process) (lines []string) {
	for _, p := range left {
		lines = append(lines, fmt.Sprintf("process %d (killed): %.*s", p.pid, longest, p.command))
	}
	return lines
}

func has(all []process, pid int) bool {
	return slices.ContainsFunc(all, func(p process) bool { return p.pid == pid })
}

// descendants returns all descendants of a process.
func descendants(of int) ([]process, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		if pid, parent, ok := parseStat(string(text)); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	var all []process
	for next := children[of]; len(next) > 0; {
		pid := next[0]
		next = append(next[1:], children[pid]...)
		all = append(all, process{pid, command(pid)})
	}
	return all, nil
}

// parseStat parses the PID and parent PID from /proc/PID/stat (proc_pid_stat(5)); ok is false
// for a process that has ended. The name in it may contain spaces and parentheses.
func parseStat(text string) (pid, parent int, ok bool) {
	id, _, found := strings.Cut(text, " (")
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if !found || len(fields) < 2 || fields[0] == "Z" {
		return 0, 0, false
	}
	pid, err := strconv.Atoi(id)
	if err != nil {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(fields[1])
	return pid, parent, err == nil
}

func command(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return "(it has ended)"
	}
	return strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
}
