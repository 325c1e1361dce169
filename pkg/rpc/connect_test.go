package rpc_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// attempt makes one call to an address.
func attempt(t *testing.T, c *rpc.Client) error {
	t.Helper()
	target := must(c.Target())(t)
	return target.Explain(listGroups(t.Context(), target.Conn))
}

// TestConnectError: each reason for which there is no connection is a sentence that names the
// address, and what to do; those for which there is nothing to wait for are known.
func TestConnectError(t *testing.T) {
	ours, other := newAuthority(t, cluster), newAuthority(t, cluster)
	elsewhere := authorityWithKey(t, "elsewhere", must(pki.GenerateKey(rand.Reader))(t))
	own := ours.operator(time.Hour)
	otherShard := ours.config()
	otherShard.TLS = ours.endpoint(ours.server("dev-2")).Server()
	anAgent := ours.config()
	anAgent.TLS = ours.endpoint(ours.agent(time.Hour)).Server()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	secure := quiet(httptest.NewUnstartedServer(http.NotFoundHandler()))
	secure.StartTLS()
	defer secure.Close()
	for name, c := range map[string]struct {
		addr    string
		keypair *pki.Keypair
		want    string
		astray  bool
	}{
		"another CA":         {serve(t, other.config()), own, "no CA known here signed", true},
		"another cluster":    {serve(t, elsewhere.config()), own, "no CA known here signed", true},
		"another shard":      {serve(t, otherShard), own, `leads to a server of shard "dev-2", want one of shard "dev-1"`, true},
		"an agent":           {serve(t, anAgent), own, "correct the address", true},
		"a web server":       {web.Listener.Addr().String(), own, "does not answer as an Nstance server does", true},
		"a web server, TLS":  {secure.Listener.Addr().String(), own, "does not answer as an Nstance server does", true},
		"another host":       {serveOn(t, ours.config(), must(net.Listen("tcp", "127.0.0.2:0"))(t)), own, "does not name this host", true},
		"our certificate":    {serve(t, ours.config()), other.operator(time.Hour), "refuses the certificate of this client", true},
		"nothing":            {refusing(t), own, "check that the server is up", false},
		"no such host":       {"no-such-host.invalid:1", own, "no-such-host.invalid", false},
		"closes at once":     {closing(t), own, "closed the connection", false},
		"a TLS server of h1": {plainTLS(t, ours), own, "does not answer as an Nstance server does", true},
	} {
		t.Run(name, func(t *testing.T) {
			err := attempt(t, ours.client(c.addr, c.keypair))
			var failed *rpc.ConnectError
			if !errors.As(err, &failed) || status.Code(err) != codes.Unavailable || rpc.Misdirected(err) != c.astray {
				t.Fatalf("%v (misdirected: %t)", err, rpc.Misdirected(err))
			}
			text := err.Error()
			host, _, _ := net.SplitHostPort(c.addr)
			if !strings.Contains(text, c.want) || !strings.Contains(text, host) || strings.Contains(text, "\n") || strings.Contains(text, "desc =") {
				t.Errorf("it says %q, want %q in it", text, c.want)
			}
		})
	}
}

// closing returns an address that closes each connection.
func closing(t *testing.T) string {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	return l.Addr().String()
}

func quiet(s *httptest.Server) *httptest.Server {
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	return s
}

// plainTLS returns the address of a server of our CA that does not speak HTTP/2.
func plainTLS(t *testing.T, a *authority) string {
	t.Helper()
	config := a.endpoint(a.server(shard)).RegistrationServer()
	server := quiet(httptest.NewUnstartedServer(http.NotFoundHandler()))
	server.Listener = tls.NewListener(server.Listener, config)
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// TestGiveUp: with GiveUp a call ends once no address leads to a server of the shard; a server that
// is down is waited for.
func TestGiveUp(t *testing.T) {
	ours := newAuthority(t, cluster)
	other := ours.config()
	other.TLS = ours.endpoint(ours.server("dev-2")).Server()
	wrong, dead := serve(t, other), refusing(t)
	var dials atomic.Int32
	ctx := overdue{t.Context(), make(chan struct{})}
	client := func(addrs ...string) *rpc.Client {
		c := must(rpc.NewClient(rpc.ClientConfig{
			Addrs: addrs, TLS: clientTLS(ours.endpoint(ours.operator(time.Hour))), Random: func() float64 { return 0 }, GiveUp: true,
			Dialer: func(attempt context.Context, addr string) (net.Conn, error) {
				if dials.Add(1) == 8 { // in the third round of two addresses
					close(ctx.passed)
				}
				return (&net.Dialer{}).DialContext(attempt, "tcp", addr)
			},
		}))(t)
		t.Cleanup(c.Close)
		return c
	}
	for _, addrs := range [][]string{{wrong}, {wrong, wrong}} {
		if _, err := whoAnswers(t.Context(), client(addrs...)); !rpc.Misdirected(err) {
			t.Errorf("%d addresses: %v", len(addrs), err)
		}
	}
	if _, err := whoAnswers(ctx, client(wrong, dead)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with one that is down: %v", err)
	}
}

// TestLost: a connection that ends under a call is named, and forgotten once there is another one.
func TestLost(t *testing.T) {
	ours := newAuthority(t, cluster)
	config := ours.config()
	entered := make(chan struct{})
	config.Services = serving(func(ctx context.Context) (*nstancev1.ListGroupsResponse, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	server := must(rpc.NewServer(config))(t)
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	go func() { _ = server.Serve(l) }()
	c := ours.client(l.Addr().String(), ours.operator(time.Hour))
	go func() {
		<-entered
		server.Stop()
	}()
	if err := attempt(t, c); !errors.As(err, new(*rpc.ConnectError)) || !strings.Contains(err.Error(), "closed the connection") {
		t.Errorf("%v", err)
	}
	config.Services = serving(func(context.Context) (*nstancev1.ListGroupsResponse, error) {
		return nil, rpc.Unavailable.Errorf("the store is away")
	})
	serveOn(t, config, must(net.Listen("tcp", l.Addr().String()))(t))
	var err error
	for range 100 { // the first may still find the connection of before
		if err = attempt(t, c); !errors.As(err, new(*rpc.ConnectError)) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if status.Convert(err).Message() != "the store is away" {
		t.Errorf("%v", err)
	}
}

// TestOtherService: a method of another listener of the server is unserved, also for a caller without
// a certificate, and from a server that does not lead.
func TestOtherService(t *testing.T) {
	ours := newAuthority(t, cluster)
	config := ours.config()
	config.Gate = &seat{leader: "10.0.0.1:8992"}
	config.TLS = ours.endpoint(ours.server(shard)).RegistrationServer()
	config.Services = func(r grpc.ServiceRegistrar) {
		nstancev1.RegisterRegistrationServiceServer(r, nstancev1.UnimplementedRegistrationServiceServer{})
	}
	err := listGroups(t.Context(), ours.dial(serve(t, config), ours.operator(time.Hour)))
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "ListGroups is not served here") {
		t.Errorf("%v", err)
	}
}
