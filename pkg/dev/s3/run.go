package s3

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/nstance/nstance/pkg/dev/gate"
)

const (
	// headerTimeout bounds the time in which a client sends its headers.
	headerTimeout = 10 * time.Second

	// shutdownTimeout bounds the wait for open requests at the end.
	shutdownTimeout = 3 * time.Second
)

// Run serves cfg on addr (host:port) until ctx ends, then lets open requests finish and returns
// nil. If the port is taken, or reachable from other machines without cfg.Network, it fails before
// the directory is touched.
func Run(ctx context.Context, addr string, cfg Config) error {
	ln, err := gate.Listen(ctx, addr, cfg.Network)
	if err != nil {
		return err
	}
	cfg.bound = addr
	defer ln.Close()
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	server, err := New(cfg)
	if err != nil {
		return err
	}
	defer server.Close() //nolint:errcheck // the process ends, and with it the claim
	cfg.Logger.Info("s3 is up",
		slog.String("endpoint", "http://"+ln.Addr().String()), slog.String("bucket", cfg.Bucket), slog.String("root", cfg.Root))
	return serve(ctx, ln, server)
}

func serve(ctx context.Context, ln net.Listener, handler http.Handler) error {
	h := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if h.Shutdown(wait) != nil {
			// A client that stalls in its body gets no reply, and nothing is written.
			h.Close() //nolint:errcheck // the listener is closed already
		}
	})
	err := h.Serve(ln)
	if !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("serve: %w", err)
	}
	<-stopped
	return nil
}
