//go:build !linux

package plane

import "syscall"

// attributes keep a terminal's Ctrl-C from the child, which ends when its turn comes.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
