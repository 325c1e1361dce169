package shardtest_test

import (
	"errors"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/shardtest"
)

// TestPorts: port 0 means any free port, and a connection reaches the port's listener, until it
// is closed.
func TestPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := shardtest.NewNetwork(1, time.Millisecond, time.Millisecond).Host("10.0.0.1")
		first, err := host.Listen(t.Context(), ":0")
		if err != nil {
			t.Fatal(err)
		}
		second, err := host.Listen(t.Context(), "10.0.0.1:0")
		if err != nil || first.Addr().String() == second.Addr().String() {
			t.Fatalf("opened %s and %s, %v", first.Addr(), second.Addr(), err)
		}
		second.Close()
		third, err := host.Listen(t.Context(), ":0")
		if err != nil || third.Addr().String() == second.Addr().String() {
			t.Errorf("%s was given again, %v", third.Addr(), err)
		}
		third.Close()
		if _, err := host.Listen(t.Context(), first.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("a port that is taken: %v", err)
		}
		conn, err := host.Dial(t.Context(), first.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		there, err := first.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = there.Write([]byte("hello"))
		there.Close()
		if text, err := io.ReadAll(conn); err != nil || string(text) != "hello" {
			t.Errorf("read %q, %v", text, err)
		}
		first.Close()
		for _, addr := range []string{first.Addr().String(), "10.0.0.1:0"} {
			if _, err := host.Dial(t.Context(), addr); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s, where nothing listens: %v", addr, err)
			}
		}
	})
}
