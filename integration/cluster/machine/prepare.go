//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// prepare gives a privileged container what the container runtime and the kubelet expect of a
// machine.
func prepare() error {
	for _, target := range []string{"/", "/sys", "/run"} {
		if err := syscall.Mount("", target, "", syscall.MS_SHARED|syscall.MS_REC, ""); err != nil && !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("share %s: %w", target, err)
		}
	}
	for file, value := range map[string]string{
		"/proc/sys/net/ipv4/ip_forward":                "1",
		"/proc/sys/net/bridge/bridge-nf-call-iptables": "1",
	} {
		if err := os.WriteFile(file, []byte(value), 0o644); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	if err := delegate("/sys/fs/cgroup"); err != nil {
		return fmt.Errorf("prepare control groups: %w", err)
	}
	if _, err := os.Stat("/dev/kmsg"); os.IsNotExist(err) { // the kubelet reads it
		if err := os.Symlink("/dev/null", "/dev/kmsg"); err != nil {
			return err
		}
	}
	return os.MkdirAll("/etc/cni/net.d", 0o755)
}

// delegate enables controllers for child control groups of version 2: the kernel allows that only
// for a group without processes, so those of this container move into a child. With version 1 there
// is nothing to do.
func delegate(root string) error {
	controllers, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	own := filepath.Join(root, "machine")
	if err := os.MkdirAll(own, 0o755); err != nil {
		return err
	}
	processes, err := os.ReadFile(filepath.Join(root, "cgroup.procs"))
	if err != nil {
		return err
	}
	for pid := range strings.FieldsSeq(string(processes)) {
		if err := os.WriteFile(filepath.Join(own, "cgroup.procs"), []byte(pid), 0o644); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	var wanted []string
	for controller := range strings.FieldsSeq(string(controllers)) {
		wanted = append(wanted, "+"+controller)
	}
	return os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte(strings.Join(wanted, " ")), 0o644)
}

// address returns the machine's address and its host name.
func address() (addr, name string, err error) {
	name, err = os.Hostname()
	if err != nil {
		return "", "", err
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return "", "", err
	}
	for _, one := range all {
		if ip, ok := one.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			return ip.IP.String(), name, nil
		}
	}
	return "", "", errors.New("the machine has no IPv4 address")
}

// write writes files, by path below folder.
func write(folder string, files map[string][]byte) error {
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
