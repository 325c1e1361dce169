package plane

import "syscall"

// attributes shield the child from a terminal's Ctrl-C, since children stop in order, and kill
// it when this process ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
