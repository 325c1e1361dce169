//go:build !linux

package plane

import "syscall"

// attributes shield the child from a terminal's Ctrl-C, since children stop in order.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
