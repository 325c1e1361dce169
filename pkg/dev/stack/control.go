package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Report is the status of the whole stack.
type Report struct {
	Ready      bool   `json:"ready"`
	Failure    string `json:"failure,omitempty"`
	Supervisor int    `json:"supervisor"`
	Provider   string `json:"provider"`
	// Short describes the groups that were changed since the static config and were not at size when
	// the stack came up.
	Short []string `json:"short,omitempty"`
	// Kubernetes is starting, up, or the error with which it failed; empty: it is not part of the
	// stack.
	Kubernetes string   `json:"kubernetes,omitempty"`
	Components []Status `json:"components"`
}

func socket(temp string) string { return filepath.Join(temp, "dev.sock") }

// serveControl listens on a socket in the stack's folder, which only the folder's owner can reach.
func (s *Stack) serveControl(ctx context.Context, shutdown func()) (closeFn func(), err error) {
	path := socket(s.cfg.Temp)
	// This process has the lock, so an existing socket is a leftover.
	_ = os.Remove(path)
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("open the control socket: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(s.report(r.Context()))
	})
	mux.HandleFunc("POST /shutdown", func(w http.ResponseWriter, _ *http.Request) {
		shutdown()
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("POST /start/{name}", s.onComponent(func(ctx context.Context, c *component, _ syscall.Signal) error {
		return c.start(ctx)
	}))
	mux.HandleFunc("POST /stop/{name}", s.onComponent(func(_ context.Context, c *component, sig syscall.Signal) error {
		c.stop(sig)
		return nil
	}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = srv.Serve(l) }()
	return func() {
		_ = srv.Close()
		_ = os.Remove(path)
	}, nil
}

func (s *Stack) onComponent(do func(context.Context, *component, syscall.Signal) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := s.component(r.PathValue("name"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		sig := syscall.SIGTERM
		if r.URL.Query().Get("signal") == "KILL" {
			sig = syscall.SIGKILL
		}
		if err := do(r.Context(), c, sig); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}

func (s *Stack) report(ctx context.Context) Report {
	s.mu.Lock()
	r := Report{
		Ready: s.ready, Failure: s.failure, Supervisor: os.Getpid(), Provider: s.cfg.Provider, Kubernetes: s.kubernetes, Short: s.short,
	}
	s.mu.Unlock()
	for _, c := range s.components {
		r.Components = append(r.Components, c.status(ctx))
	}
	return r
}
