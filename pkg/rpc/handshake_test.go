package rpc_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
)

// lane is a listener that is dialled from chosen addresses.
type lane struct {
	arriving chan net.Conn
	done     chan struct{}
	once     sync.Once
}

func newLane() *lane { return &lane{arriving: make(chan net.Conn), done: make(chan struct{})} }

func (l *lane) Accept() (net.Conn, error) {
	select {
	case c := <-l.arriving:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *lane) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *lane) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(203, 0, 113, 1), Port: 8994} }

type from struct {
	net.Conn
	addr net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.addr }

// dial connects from an address; an empty one is not TCP.
func (l *lane) dial(source string) net.Conn {
	near, far := net.Pipe()
	accepted := from{far, far.RemoteAddr()}
	if source != "" {
		accepted.addr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(source), 40000))
	}
	select {
	case l.arriving <- accepted:
	case <-l.done:
		near.Close()
	}
	return near
}

func (l *lane) dials(t *testing.T, n int, source string) (all []net.Conn) {
	for range n {
		conn := l.dial(source)
		t.Cleanup(func() { conn.Close() })
		all = append(all, conn)
	}
	return all
}

// open reports whether the server has kept a connection open.
func open(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(time.Nanosecond))
	_, err := conn.Read(make([]byte, 1))
	var timeout net.Error
	return err == nil || errors.As(err, &timeout) && timeout.Timeout()
}

func countOpen(conns []net.Conn) (n int) {
	for _, c := range conns {
		if open(c) {
			n++
		}
	}
	return n
}

// door runs the RPC server of config with these limits.
func door(t *testing.T, config rpc.ServerConfig, limits rpc.Conns) *lane {
	t.Helper()
	l := newLane()
	serveOn(t, config, rpc.Limit(l, limits))
	return l
}

func budget(known func(netip.Addr) bool) *rpc.Handshakes {
	return rpc.NewHandshakes(rpc.HandshakeLimits{}, known)
}

// knock does a handshake from an address and returns its duration.
func (a *authority) knock(l *lane, source string, keypair *pki.Keypair) (net.Conn, time.Duration, error) {
	began := time.Now()
	raw := l.dial(source)
	config := a.endpoint(keypair).Client("127.0.0.1", shard)
	config.NextProtos = []string{"h2"}
	conn := tls.Client(raw, config)
	err := conn.Handshake()
	if err == nil { // the server checks the certificate after this
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err = conn.Read(make([]byte, 1)) // of its SETTINGS
		_ = conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		raw.Close()
	}
	a.t.Cleanup(func() { raw.Close() })
	return conn, time.Since(began), err
}

// TestHandshakesOfStrangers floods a listener from four addresses with silent connections:
// each has 32 handshakes in progress, and waiting ones are closed after 5 s. An agent from
// another address is admitted at once.
func TestHandshakesOfStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := newAuthority(t, cluster)
		l := door(t, ours.config(), rpc.Conns{Max: 100, Handshakes: budget(nil)})
		var flood []net.Conn
		for _, source := range []string{"192.0.2.1", "127.0.0.1", "fd00::1", ""} {
			flood = append(flood, l.dials(t, 100, source)...)
		}
		if _, took, err := ours.knock(l, "192.0.2.9", ours.agent(time.Hour)); err != nil || took > 0 {
			t.Errorf("an agent of another address: %v after %s", err, took)
		}
		synctest.Wait()
		if n := countOpen(flood); n != 400 {
			t.Errorf("%d of 400 connections wait or are in their handshake", n)
		}
		time.Sleep(5*time.Second + time.Millisecond)
		if n := countOpen(flood); n != 4*32 {
			t.Errorf("%d connections are left after 5 s, want 32 of each address", n)
		}
		time.Sleep(5 * time.Second)
		if n := countOpen(flood); n != 0 {
			t.Errorf("%d connections are left after 10 s", n)
		}
	})
}

// TestHandshakesOfKnownSources: a source with a connected agent, or with an instance's
// address, has room even with many silent connections from its own address.
func TestHandshakesOfKnownSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := newAuthority(t, cluster)
		instance := netip.MustParseAddr("fd00::2")
		l := door(t, ours.config(), rpc.Conns{Handshakes: budget(func(a netip.Addr) bool { return a == instance })})
		if _, _, err := ours.knock(l, "192.0.2.1", ours.agent(time.Hour)); err != nil {
			t.Fatal(err)
		}
		l.dials(t, 100, "192.0.2.1")
		l.dials(t, 100, "fd00::1")
		if _, took, err := ours.knock(l, "fd00::3", ours.agent(time.Hour)); err == nil {
			t.Errorf("a stranger was let in beside 100 of the same /64, after %s", took)
		}
		l.dials(t, 100, "fd00::1")
		for _, source := range []string{"192.0.2.1", "fd00::2"} {
			if _, took, err := ours.knock(l, source, ours.agent(time.Hour)); err != nil || took > 0 {
				t.Errorf("from %s: %v after %s", source, err, took)
			}
		}
	})
}

// TestHandshakesOfTwoKnownSources: two instances with unfinished handshakes do not keep out
// another one, nor a stranger.
func TestHandshakesOfTwoKnownSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := newAuthority(t, cluster)
		instances := netip.MustParsePrefix("10.0.0.0/24")
		l := door(t, ours.config(), rpc.Conns{Handshakes: budget(instances.Contains)})
		l.dials(t, 600, "10.0.0.1")
		l.dials(t, 600, "10.0.0.2")
		for _, source := range []string{"10.0.0.3", "192.0.2.1"} {
			if _, took, err := ours.knock(l, source, ours.agent(time.Hour)); err != nil || took > 0 {
				t.Errorf("from %s: %v after %s", source, err, took)
			}
		}
	})
}

// TestReconnectBehindOneAddress: the first connection makes the address known.
func TestReconnectBehindOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := newAuthority(t, cluster)
		l := door(t, ours.config(), rpc.Conns{Handshakes: budget(nil)})
		agent := ours.agent(time.Hour)
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				if _, took, err := ours.knock(l, "192.0.2.1", agent); err != nil || took > 0 {
					t.Errorf("%v after %s", err, took)
				}
			})
		}
		all.Wait()
	})
}

// TestEstablishedApart: half-open and established connections have separate limits.
func TestEstablishedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := newAuthority(t, cluster)
		l := door(t, ours.config(), rpc.Conns{Max: 3, Handshakes: budget(nil)})
		l.dials(t, 100, "192.0.2.1")
		for n := range 3 {
			if _, _, err := ours.knock(l, "192.0.2.2", ours.agent(time.Hour)); err != nil {
				t.Errorf("agent %d of 3: %v", n, err)
			}
		}
		if _, _, err := ours.knock(l, "192.0.2.2", ours.agent(time.Hour)); err == nil {
			t.Error("a fourth was let in")
		}
	})
}

// TestAnonymousConnectionsPerSource: connections without a certificate are limited per source,
// and closing one frees its place.
func TestAnonymousConnectionsPerSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := newAuthority(t, cluster)
		config := ours.config()
		config.TLS = ours.endpoint(ours.server(shard)).RegistrationServer()
		l := door(t, config, rpc.Conns{PerSource: 2, Handshakes: budget(nil)})
		var in []net.Conn
		for range 2 {
			conn, _, err := ours.knock(l, "127.0.0.1", nil)
			if err != nil {
				t.Fatal(err)
			}
			in = append(in, conn)
		}
		if _, _, err := ours.knock(l, "127.0.0.1", nil); err == nil {
			t.Error("a third was let in")
		}
		if _, _, err := ours.knock(l, "127.0.0.2", nil); err != nil {
			t.Errorf("another source: %v", err)
		}
		in[0].Close()
		synctest.Wait()
		if _, _, err := ours.knock(l, "127.0.0.1", nil); err != nil {
			t.Errorf("after one place was given back: %v", err)
		}
	})
}

// bigHello is the start of a 64 KiB ClientHello, in records of the maximum size (RFC 8446,
// 5.1).
func bigHello() []byte {
	const body, record = 65532, 1 << 14
	message := append([]byte{1, 0, body >> 8 & 0xff, body & 0xff, 3, 3}, make([]byte, body-2)...)
	var wire []byte
	for len(message) > 0 {
		n := min(record, len(message))
		wire = append(wire, 22, 3, 1, byte(n>>8), byte(n&0xff))
		wire, message = append(wire, message[:n]...), message[n:]
	}
	return wire
}

// TestLargeHello: a handshake is limited to 16 KiB, for gRPC and HTTP.
func TestLargeHello(t *testing.T) {
	for name, serve := range map[string]func(*testing.T, *authority, *rpc.Handshakes) *lane{
		"grpc": func(t *testing.T, ours *authority, h *rpc.Handshakes) *lane {
			return door(t, ours.config(), rpc.Conns{Handshakes: h})
		},
		"http": func(t *testing.T, ours *authority, h *rpc.Handshakes) *lane {
			return httpDoor(t, ours, rpc.Conns{Handshakes: h})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours := newAuthority(t, cluster)
				l := serve(t, ours, budget(nil))
				conn := l.dial("192.0.2.1")
				defer conn.Close()
				go func() { _, _ = io.Copy(io.Discard, conn) }() // its alert
				if n, err := conn.Write(bigHello()); err == nil || n > 16<<10 {
					t.Errorf("%d bytes were read (%v), want 16384 at most", n, err)
				}
			})
		})
	}
}

func httpDoor(t *testing.T, ours *authority, limits rpc.Conns) *lane {
	t.Helper()
	l := newLane()
	config := ours.endpoint(ours.server(shard)).PeerServer(shard)
	config.NextProtos = []string{"http/1.1"}
	server := &http.Server{ //nolint:gosec // the handshake's timeout is under test
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "well") }),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(rpc.NewTLSListener(t.Context(), rpc.Limit(l, limits), config, 10*time.Second, "election", nil))
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return l
}

// TestHandshakesOverHTTP: a flood from one address leaves room for a peer, which is answered,
// and gets only its own share.
func TestHandshakesOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := newAuthority(t, cluster)
		l := httpDoor(t, ours, rpc.Conns{Max: 10, Handshakes: budget(nil)})
		flood := l.dials(t, 100, "192.0.2.1")
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: ours.endpoint(ours.server(shard)).Client("127.0.0.1", shard),
			DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial("192.0.2.2"), nil },
		}}
		began := time.Now()
		answer, err := client.Get("https://127.0.0.1/")
		if err != nil || time.Since(began) > 0 {
			t.Fatalf("%v after %s", err, time.Since(began))
		}
		if body, err := io.ReadAll(answer.Body); string(body) != "well" || err != nil {
			t.Errorf("answered %q, %v", body, err)
		}
		answer.Body.Close()
		time.Sleep(10*time.Second + time.Millisecond)
		if n := countOpen(flood); n != 0 {
			t.Errorf("%d connections are left after 10 s", n)
		}
	})
}

// TestListenerEnds: waiting and unaccepted connections are closed with the listener.
func TestListenerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane()
		limited := rpc.Limit(l, rpc.Conns{Handshakes: budget(nil)})
		accepted := make(chan net.Conn, 1)
		go func() {
			conn, _ := limited.Accept()
			accepted <- conn
		}()
		conns := l.dials(t, 40, "192.0.2.1")
		first := <-accepted
		defer first.Close()
		synctest.Wait()
		limited.Close()
		synctest.Wait()
		if n := countOpen(conns); n != 1 {
			t.Errorf("%d connections are open, want the accepted one", n)
		}
		if _, err := limited.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept returned %v", err)
		}
	})
}

// TestCallsBehindHandshakes: a complete call over an admitted connection.
func TestCallsBehindHandshakes(t *testing.T) {
	ours := newAuthority(t, cluster)
	listener := must(rpc.Listen(t.Context(), "test", "127.0.0.1:0", rpc.Conns{Handshakes: budget(nil)}))(t)
	addr := serveOn(t, ours.config(), listener)
	err := listGroups(t.Context(), ours.dial(addr, ours.operator(time.Hour)))
	if status.Code(err) != codes.Unimplemented { // from the handler
		t.Errorf("ListGroups: %v", err)
	}
}
