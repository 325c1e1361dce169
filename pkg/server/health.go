package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/nstance/nstance/pkg/rpc"
)

// Readiness is what the health endpoint shows: 503 and the part that is not ready
// while the server boots or can't serve, 200 once it is ready to lead. Anybody may
// ask, so what it shows are names of parts, never an error's text. Safe for
// concurrent use; the zero value is not ready.
type Readiness struct {
	mu     sync.Mutex
	ready  bool
	reason string
	note   string // beside it
	down   bool
}

// NotReady records why the server can't serve.
func (r *Readiness) NotReady(reason string) { r.set(false, reason) }

// Ready records that the server can serve; note says in which role.
func (r *Readiness) Ready(note string) { r.set(true, note) }

// Note has the answer say something beside the reason; empty: nothing.
func (r *Readiness) Note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note = text
}

// ShutDown records that the server is going down, which is its last word.
func (r *Readiness) ShutDown() {
	r.set(false, "shutting down")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = true
}

func (r *Readiness) set(ready bool, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.down {
		r.ready, r.reason = ready, reason
	}
}

// ServeHTTP answers every path: whoever probes a server wants one thing.
func (r *Readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	ready, reason, note := r.ready, r.reason, r.note
	r.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if reason == "" {
		reason = "starting"
	}
	if note != "" {
		reason += "; " + note
	}
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintln(w, reason)
}

// healthEndpoint shows readiness on an address.
type healthEndpoint struct {
	asked string // as configured
	addr  string // as bound
	http  *http.Server
}

// openHealth shows readiness before anything else is known.
func (s *Server) openHealth(ctx context.Context) (err error) {
	addr := s.cfg.Bind.Health
	if addr == "" {
		addr = DefaultHealthAddr
	}
	s.health, err = s.showHealth(ctx, "--health-addr", addr)
	return err
}

// moveHealth goes on at the address that the config says, if it is another one.
func (s *Server) moveHealth(ctx context.Context) error {
	if s.bind.Health == s.health.asked {
		return nil
	}
	s.health.close()
	moved, err := s.showHealth(ctx, "server.bind.health_addr", s.bind.Health)
	if err != nil {
		return err
	}
	s.health = moved
	return nil
}

func (s *Server) showHealth(ctx context.Context, field, addr string) (*healthEndpoint, error) {
	l, err := s.open(ctx, field, addr, rpc.ProbeConns())
	if err != nil {
		return nil, err
	}
	srv := rpc.NewProbeServer(&s.ready, slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug))
	srv.BaseContext = func(net.Listener) context.Context { return ctx }
	// It ends with close, and when the listener breaks a probe says so best.
	go func() { _ = srv.Serve(l) }()
	return &healthEndpoint{asked: addr, addr: l.Addr().String(), http: srv}, nil
}

func (h *healthEndpoint) close() { _ = h.http.Close() }
