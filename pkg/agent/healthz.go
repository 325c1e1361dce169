package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/nstance/nstance/pkg/rpc"
)

// maxHealthConns is plenty for whatever probes one machine.
const maxHealthConns = 32

// serveHealth answers every GET on addr with 200 while the agent is connected,
// and with 503 and the reason while it is not; on no address at all when addr is
// empty. stop ends it.
func serveHealth(ctx context.Context, addr string, t *tracker) (stop func(), err error) {
	if addr == "" {
		return func() {}, nil
	}
	listener, err := rpc.Listen(ctx, envHealthAddr, addr, rpc.Conns{Max: maxHealthConns})
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(t.answer),
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          slog.NewLogLogger(t.logger.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.logger.LogAttrs(ctx, slog.LevelError, "the health endpoint ended", slog.Any("error", err))
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
	if s.State == StateConnected {
		fmt.Fprintf(w, "%s\n", s.State)
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprintf(w, "%s: %s\n", s.State, s.Reason)
}
