//go:build !linux

package rpc

import "syscall"

// setUserTimeout does nothing where TCP_USER_TIMEOUT does not exist: there only keepalive
// pings detect a dead peer.
func setUserTimeout(_, _ string, _ syscall.RawConn) error { return nil }
