package rpc

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// setUserTimeout sets TCP_USER_TIMEOUT (RFC 5482) on a listener, which accepted connections
// inherit: a connection ends if data stays unacknowledged for as long as a keepalive ping may
// take. gRPC does so only for unwrapped connections, and these are wrapped.
func setUserTimeout(_, _ string, c syscall.RawConn) error {
	var setErr error
	err := c.Control(func(fd uintptr) {
		setErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(KeepaliveTimeout.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return setErr
}
