package s3

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"
)

const (
	// headerTimeout bounds how long a client may take over its headers.
	headerTimeout = 10 * time.Second

	// goodbye bounds how long requests under way are waited for at the end.
	goodbye = 3 * time.Second
)

// Run serves cfg on addr (host:port) until ctx ends, then lets requests under way
// finish and returns nil. A port that is taken is an error that says so, before
// the directory is touched.
func Run(ctx context.Context, addr string, cfg Config) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen on %s: the port is taken by another process", addr)
	}
	if err != nil {
		return fmt.Errorf("listen on %q: %w", addr, err)
	}
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
		wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
		defer cancel()
		if h.Shutdown(wait) != nil {
			// A client that stalls in its body gets no answer, and nothing is written.
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
