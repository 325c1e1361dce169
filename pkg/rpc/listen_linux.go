package rpc

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// setUserTimeout gives a listener TCP_USER_TIMEOUT (RFC 5482), which accepted
// connections inherit: data that stays unacknowledged for as long as a keepalive
// ping may take ends the connection. gRPC does so itself only for a connection
// that nobody wrapped, and ours are counted.
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
