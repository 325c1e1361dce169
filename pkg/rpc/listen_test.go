package rpc_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/rpc"
)

func TestListenErrorsNameFieldAndAddress(t *testing.T) {
	taken := must(rpc.Listen(t.Context(), "first", "127.0.0.1:0", rpc.Conns{}))(t)
	defer taken.Close()
	for addr, want := range map[string]string{
		taken.Addr().String(): "already in use",
		"203.0.113.1:0":       "not an address of this machine",
		"nonsense":            "is not an address",
		"127.0.0.1:99999":     "no valid port",
	} {
		_, err := rpc.Listen(t.Context(), "server.bind.agent_addr", addr, rpc.Conns{})
		if err == nil || !strings.HasPrefix(err.Error(), "server.bind.agent_addr: ") ||
			!strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), want) {
			t.Errorf("Listen(%q): %v, want the field, the address and %q", addr, err, want)
		}
	}
}

func TestListenCapsConnections(t *testing.T) {
	listener := must(rpc.Listen(t.Context(), "test", "127.0.0.1:0", rpc.Conns{Max: 2, PerSource: 2}))(t)
	defer listener.Close()
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		conn := must(net.Dial("tcp", listener.Addr().String()))(t)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	dial()
	dial()
	first, second := <-accepted, <-accepted
	defer second.Close()
	third := dial()
	third.SetReadDeadline(time.Now().Add(patience))
	if _, err := third.Read(make([]byte, 1)); err == nil || !isClosed(err) {
		t.Fatalf("the connection over the limit: %v, want it closed", err)
	}
	first.Close()
	first.Close() // frees one place, not two
	dial()
	fourth := <-accepted
	defer fourth.Close()
	fifth := dial()
	fifth.SetReadDeadline(time.Now().Add(patience))
	if _, err := fifth.Read(make([]byte, 1)); err == nil || !isClosed(err) {
		t.Fatalf("the connection over the limit after a double close: %v, want it closed", err)
	}
}

// isClosed distinguishes a closed connection (FIN or RST) from a read timeout.
func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || strings.Contains(err.Error(), "reset")
}
