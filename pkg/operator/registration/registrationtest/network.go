package registrationtest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc/test/bufconn"
)

// Network is one in memory, for tests in the time of testing/synctest. Its zero value is
// ready. It is safe for concurrent use.
type Network struct {
	mu  sync.Mutex
	all map[string]*bufconn.Listener // by address
}

// listen makes a listener, and says where it is.
func (n *Network) listen() (l net.Listener, addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[string]*bufconn.Listener{}
	}
	in := bufconn.Listen(256 << 10)
	addr = fmt.Sprintf("127.0.0.1:%d", 1000+len(n.all))
	n.all[addr] = in
	return in, addr
}

// Dial connects to a shard's service by its address.
func (n *Network) Dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	in := n.all[addr]
	n.mu.Unlock()
	if in == nil {
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	return in.DialContext(ctx)
}

// loopback makes a listener that connections from everywhere on this machine reach.
func loopback(tb testing.TB) (l net.Listener, addr string) {
	tb.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return l, l.Addr().String()
}
