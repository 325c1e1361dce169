package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/nstance/nstance/pkg/rpc"
)

// serveHealth answers every GET on addr with 200 while the agent is connected, and otherwise
// with 503 and its state. An empty addr serves nothing. The endpoint needs no identity, so the
// reason for the state is only in the log and the status file. stop ends it.
func serveHealth(ctx context.Context, addr string, t *tracker) (stop func(), err error) {
	if addr == "" {
		return func() {}, nil
	}
	listener, err := rpc.Listen(ctx, envHealthAddr, addr, rpc.ProbeConns())
	if err != nil {
		return nil, err
	}
	server := rpc.NewProbeServer(http.HandlerFunc(t.answer), slog.NewLogLogger(t.logger.Handler(), slog.LevelDebug))
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.logger.LogAttrs(ctx, slog.LevelError, "the health endpoint failed", slog.Any("error", err))
		}
	}()
	return func() {
		if err := server.Close(); err != nil {
			t.logger.LogAttrs(ctx, slog.LevelDebug, "closed the health endpoint", slog.Any("error", err))
		}
	}, nil
}

func (t *tracker) answer(w http.ResponseWriter, _ *http.Request) {
	s := t.current()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if s.State != StateConnected {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintln(w, s.State)
}
