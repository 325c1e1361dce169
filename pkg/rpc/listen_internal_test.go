package rpc

import (
	"net"
	"net/netip"
	"testing"
)

// arrivals is a listener with connections from given addresses.
type arrivals struct {
	net.Listener
	from []string
}

func (a *arrivals) Accept() (net.Conn, error) {
	if len(a.from) == 0 {
		return nil, net.ErrClosed
	}
	addr := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a.from[0]))
	a.from = a.from[1:]
	near, far := net.Pipe()
	far.Close()
	return arrival{near, addr}, nil
}

type arrival struct {
	net.Conn
	remote net.Addr
}

func (a arrival) RemoteAddr() net.Addr { return a.remote }

// TestConnectionsPerSource: one host can't use up the places, an IPv6 /64 counts as one, and
// loopback is no exception.
func TestConnectionsPerSource(t *testing.T) {
	at := &arrivals{}
	l := newCappedListener(at, Conns{Max: 100, PerSource: 2})
	let := func(from ...string) (in []net.Conn) {
		at.from = from
		for {
			conn, err := l.Accept()
			if err != nil {
				return in
			}
			in = append(in, conn)
		}
	}
	first := let("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "[::ffff:10.0.0.1]:4")
	if len(first) != 2 {
		t.Fatalf("%d connections of one address are open, want 2", len(first))
	}
	six := let("[fd00::1]:1", "[fd00::2]:1", "[fd00::3]:1", "[fd00:0:0:1::1]:1")
	if len(six) != 3 || six[2].RemoteAddr().String() != "[fd00:0:0:1::1]:1" {
		t.Errorf("%d connections of two /64 are open, want 3", len(six))
	}
	if n := len(let("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "[::1]:1", "[::1]:2", "[::1]:3")); n != 4 {
		t.Errorf("%d connections of loopback were let in, want 2 of each address", n)
	}
	if n := len(let("10.0.0.2:1")); n != 1 {
		t.Errorf("another address was let in %d times, want once", n)
	}
	first[0].Close()
	first[0].Close() // frees one place, not two
	again := let("10.0.0.1:5", "10.0.0.1:6")
	if len(again) != 1 {
		t.Errorf("%d connections after one place was given back, want 1", len(again))
	}
	for _, conn := range append(again, first[1]) {
		conn.Close()
	}
	if _, kept := l.sources[netip.MustParsePrefix("10.0.0.1/32")]; kept {
		t.Error("a source without a connection is remembered")
	}
}

// TestOldestGoes: a new connection replaces the oldest one of its source, or, if the listener
// is full, of the source with most.
func TestOldestGoes(t *testing.T) {
	at := &arrivals{from: []string{
		"10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.1:4", // 1 is closed for 4
		"10.0.0.2:1", "10.0.0.2:2", "10.0.0.3:1", // 10.0.0.1:2 is closed for the last
	}}
	l := newCappedListener(at, Conns{Max: 5, PerSource: 3, OldestGoes: true})
	for {
		if _, err := l.Accept(); err != nil {
			break
		}
	}
	left := make(map[string]bool)
	for _, of := range l.sources {
		for e := of.Front(); e != nil; e = e.Next() {
			left[e.Value.(*countedConn).RemoteAddr().String()] = true
		}
	}
	want := []string{"10.0.0.1:3", "10.0.0.1:4", "10.0.0.2:1", "10.0.0.2:2", "10.0.0.3:1"}
	for _, addr := range want {
		if !left[addr] {
			t.Errorf("%s is gone", addr)
		}
	}
	if len(left) != len(want) || l.open != len(want) {
		t.Errorf("%d are left, %d counted: %v", len(left), l.open, left)
	}
}

// TestConnsDefaults: no single host can fill a listener.
func TestConnsDefaults(t *testing.T) {
	for _, c := range []Conns{{}, RegistrationConns(), PeerConns(), ProbeConns(), {Max: 8}, {Max: 2}} {
		if d := c.withDefaults(); d.Max < 1 || d.PerSource < 1 || d.PerSource >= d.Max {
			t.Errorf("%+v becomes %+v", c, d)
		}
	}
}
