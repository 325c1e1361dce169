//go:build !linux

package rpc

import "syscall"

// setUserTimeout does nothing where there is no TCP_USER_TIMEOUT: keepalive
// pings alone notice a dead peer there.
func setUserTimeout(_, _ string, _ syscall.RawConn) error { return nil }
