// Command runtime is an OCI runtime for hosts without some of the privileges that a privileged
// container needs. It removes from a container's configuration what the host itself may not do, and
// then calls runc: capabilities outside the host's bounding set, limits of open files above its
// own, and OOM scores that need CAP_SYS_RESOURCE. An engine on a complete host needs no such
// runtime.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nstance-runtime:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if file := settings(args); file != "" {
		bounding, err := boundingSet()
		if err != nil {
			return err
		}
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			return fmt.Errorf("read the limit of open files: %w", err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if text, err = fit(text, bounding, limit.Max); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	return syscall.Exec(runc, append([]string{"runc"}, args...), os.Environ())
}

// settings returns the file with which a command creates a process: a container's configuration, or
// that of another process in it; empty: the command creates none.
func settings(args []string) string {
	switch {
	case slices.Contains(args, "create"), slices.Contains(args, "run"):
		return filepath.Join(flag(args, "bundle", "b"), "config.json")
	case slices.Contains(args, "exec"):
		return flag(args, "process", "p")
	default:
		return ""
	}
}

// flag returns the value of a flag, by its long or its short name; empty: it is not set.
func flag(args []string, long, short string) string {
	for i, arg := range args {
		if value, found := strings.CutPrefix(arg, "--"+long+"="); found {
			return value
		}
		if (arg == "--"+long || arg == "-"+short) && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// boundingSet returns the host's capabilities, by number.
func boundingSet() (uint64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			return strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no CapBnd")
}

// sysResource is the number of CAP_SYS_RESOURCE, which is needed to raise limits.
const sysResource = 24

// fit removes from a container's or a process's configuration what needs more than the capabilities
// in bounding and more than files open files. Everything else stays as it is, numbers included.
func fit(config []byte, bounding, files uint64) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(config))
	d.UseNumber()
	var all map[string]any
	if err := d.Decode(&all); err != nil {
		return nil, err
	}
	process, ok := all["process"].(map[string]any)
	if !ok {
		process = all
	}
	if sets, ok := process["capabilities"].(map[string]any); ok {
		for name, set := range sets {
			sets[name] = within(set, bounding)
		}
	}
	if bounding&(1<<sysResource) == 0 {
		unforced(process, files)
	}
	return json.Marshal(all)
}

func within(set any, bounding uint64) any {
	names, ok := set.([]any)
	if !ok {
		return set
	}
	return slices.DeleteFunc(names, func(name any) bool {
		number := slices.Index(capabilities(), fmt.Sprint(name))
		return number >= 0 && bounding&(1<<number) == 0
	})
}

// unforced lowers values that only CAP_SYS_RESOURCE may raise.
func unforced(process map[string]any, files uint64) {
	if score, ok := process["oomScoreAdj"].(json.Number); ok && strings.HasPrefix(string(score), "-") {
		process["oomScoreAdj"] = 0
	}
	limits, _ := process["rlimits"].([]any)
	for _, one := range limits {
		limit, ok := one.(map[string]any)
		if !ok || limit["type"] != "RLIMIT_NOFILE" {
			continue
		}
		for _, name := range []string{"soft", "hard"} {
			value, _ := limit[name].(json.Number)
			if n, err := strconv.ParseUint(string(value), 10, 64); err != nil || n > files {
				limit[name] = files
			}
		}
	}
}

// capabilities are the kernel's, in the order of their numbers (linux/capability.h).
func capabilities() []string {
	return []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
		"CAP_SETPCAP", "CAP_LINUX_IMMUTABLE", "CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_IPC_LOCK",
		"CAP_IPC_OWNER", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_SYS_PACCT", "CAP_SYS_ADMIN",
		"CAP_SYS_BOOT", "CAP_SYS_NICE", "CAP_SYS_RESOURCE", "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD", "CAP_LEASE",
		"CAP_AUDIT_WRITE", "CAP_AUDIT_CONTROL", "CAP_SETFCAP", "CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_SYSLOG", "CAP_WAKE_ALARM",
		"CAP_BLOCK_SUSPEND", "CAP_AUDIT_READ", "CAP_PERFMON", "CAP_BPF", "CAP_CHECKPOINT_RESTORE",
	}
}
