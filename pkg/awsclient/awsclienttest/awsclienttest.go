// Package awsclienttest lets tests call a cloud implemented by an http.Handler, such as
// awstest, also within testing/synctest.
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

// wire is an in-memory network with one server, within the test's synctest bubble.
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

// keys are fixed credentials for servers that don't check them.
type keys struct{}

func (keys) Retrieve(context.Context) (sdk.Credentials, error) {
	return sdk.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret", Source: "test"}, nil
}

// Late is a credentials provider that fails the next Missing times. It is safe for concurrent
// use.
type Late struct {
	sdk.CredentialsProvider
	Err     error // the error returned then
	Missing atomic.Int32
}

// Retrieve implements sdk.CredentialsProvider.
func (l *Late) Retrieve(ctx context.Context) (sdk.Credentials, error) {
	if l.Missing.Add(-1) >= 0 {
		return sdk.Credentials{}, l.Err
	}
	return l.CredentialsProvider.Retrieve(ctx)
}

// Serve serves a cloud, whatever host it is called by, and returns a configuration to call it
// in a region.
func Serve(t *testing.T, cloud http.Handler, region string) awsclient.Config {
	t.Helper()
	w := &wire{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: cloud, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(w) }()
	transport := &http.Transport{DialContext: w.dial, DialTLSContext: w.dial} // no TLS: the tests are about the requests
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
