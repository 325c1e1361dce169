package rpc_test

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/rpc"
)

// ended reports whether the server has closed a connection, whatever it sent before.
func ended(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(time.Nanosecond))
	_, err := io.Copy(io.Discard, conn)
	timeout, ok := err.(net.Error) //nolint:errorlint // of this connection
	return !ok || !timeout.Timeout()
}

// TestPlacesHeldOpen: strangers that finish their handshakes and then send nothing do not keep
// out an instance, nor another stranger, which replaces the oldest of them.
func TestPlacesHeldOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := newAuthority(t, cluster)
		config := ours.config()
		config.TLS = ours.endpoint(ours.server(shard)).RegistrationServer()
		instance := netip.MustParseAddr("10.0.0.1")
		l := door(t, config, rpc.Conns{Max: 8, PerSource: 2, Handshakes: budget(func(a netip.Addr) bool { return a == instance })})
		var held []net.Conn
		for _, source := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"} {
			for range 2 {
				conn, _, err := ours.knock(l, source, nil)
				if err != nil {
					t.Fatalf("from %s: %v", source, err)
				}
				held = append(held, conn)
			}
		}
		for n := range 2 {
			if _, _, err := ours.knock(l, "10.0.0.1", nil); err != nil {
				t.Errorf("connection %d of an instance: %v", n, err)
			}
		}
		fresh, _, err := ours.knock(l, "192.0.2.9", nil)
		if err != nil {
			t.Fatalf("a stranger of another address: %v", err)
		}
		synctest.Wait()
		left := 0
		for _, conn := range held {
			if !ended(conn) {
				left++
			}
		}
		if left != 5 || ended(fresh) {
			t.Errorf("%d connections that say nothing are left, want 5; the newest stranger's has ended: %t", left, ended(fresh))
		}
	})
}
