package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// secluded is the argument with which this program runs a command in its own network namespace.
const secluded = "secluded"

// secludedCommand returns a command in a new network namespace (network_namespaces(7)), which has
// only loopback.
func secludedCommand(ctx context.Context, command []string) *exec.Cmd {
	program, err := os.Executable()
	if err != nil {
		program = "/proc/self/exe"
	}
	cmd := exec.CommandContext(ctx, program, append([]string{secluded}, command...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	return cmd
}

// ownSession starts a command in a session of its own. Sessions share the processor evenly
// (sched(7), autogroups), however many processes each has, so that a lane that mostly waits gets
// its turn at once beside one that computes.
func ownSession(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) } // it is not notified by a terminal
}

// canSeclude reports whether network namespaces can be created here.
func canSeclude(ctx context.Context) bool { return secludedCommand(ctx, []string{"true"}).Run() == nil }

// seclude brings loopback up and execs a command. It returns only errors.
func seclude(command []string) error {
	if err := loopback(); err != nil {
		return fmt.Errorf("turn loopback on in a network namespace: %w", err)
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", path, syscall.Exec(path, command, os.Environ()))
}

// loopback brings the interface lo up, as in netdevice(7), which adds its addresses.
func loopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCGIFFLAGS, lo); err != nil {
		return err
	}
	lo.SetUint16(lo.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, lo)
}
