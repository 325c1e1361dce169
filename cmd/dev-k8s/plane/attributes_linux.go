package plane

import "syscall"

// attributes keep a terminal's Ctrl-C from the child, which ends when its turn comes,
// and let it end with this process, however that ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
