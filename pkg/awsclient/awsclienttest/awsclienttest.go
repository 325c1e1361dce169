// Package awsclienttest has tests call a cloud that is a handler, such as awsfake, in
// testing/synctest too.
package awsclienttest

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/nstance/nstance/pkg/awsclient"
)

// wire is a network with one server on it, inside the test's own bubble of time.
type wire struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.done:
		return nil, net.ErrClosed
	}
}

func (w *wire) Close() error   { w.once.Do(func() { close(w.done) }); return nil }
func (w *wire) Addr() net.Addr { return &net.IPAddr{} }

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case w.conns <- far:
		return near, nil
	case <-w.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// keys are credentials that nobody checks.
type keys struct{}

func (keys) Retrieve(context.Context) (sdk.Credentials, error) {
	return sdk.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret", Source: "test"}, nil
}

// Late are credentials that can't be had for the next Missing times. It is safe for
// concurrent use.
type Late struct {
	sdk.CredentialsProvider
	Err     error // what is said then
	Missing atomic.Int32
}

// Retrieve implements sdk.CredentialsProvider.
func (l *Late) Retrieve(ctx context.Context) (sdk.Credentials, error) {
	if l.Missing.Add(-1) >= 0 {
		return sdk.Credentials{}, l.Err
	}
	return l.CredentialsProvider.Retrieve(ctx)
}

// Serve makes a cloud answer, whatever it is called by, and returns how it is called as
// one of a region.
func Serve(t *testing.T, cloud http.Handler, region string) awsclient.Config {
	t.Helper()
	w := &wire{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: cloud, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(w) }()
	transport := &http.Transport{DialContext: w.dial, DialTLSContext: w.dial} // plain too: the test is about what is in it
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Errorf("close the cloud: %v", err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the cloud ended: %v", err)
		}
	})
	return awsclient.Config{Region: region, Credentials: keys{}, HTTPClient: &http.Client{Transport: transport}}
}
