package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/nstance/nstance/pkg/rpc"
)

// Readiness is the health endpoint: 503 and the part that is not ready while the server boots or
// can't serve, 200 once it is ready to lead. The endpoint is public, so it shows names of parts,
// never an error's text. Safe for concurrent use; the zero value is not ready.
type Readiness struct {
	mu     sync.Mutex
	ready  bool
	reason string
	note   string // appended to reason
	down   bool
	// storage says what is wrong with object storage; nil, or empty: nothing is known to be.
	storage func() string
}

// NotReady records why the server can't serve.
func (r *Readiness) NotReady(reason string) { r.set(false, reason) }

// Ready records that the server can serve; note says in which role.
func (r *Readiness) Ready(note string) { r.set(true, note) }

// Note appends a text to the response; empty removes it.
func (r *Readiness) Note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note = text
}

// isReady reports whether the server can serve.
func (r *Readiness) isReady() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready
}

// ShutDown records that the server is shutting down. Later changes are ignored.
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

// ServeHTTP serves every path the same.
func (r *Readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	ready, reason, note := r.ready, r.reason, r.note
	r.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	reason = cmp.Or(reason, "starting")
	if note != "" {
		reason += "; " + note
	}
	if r.storage != nil {
		if trouble := r.storage(); trouble != "" {
			reason += "; " + trouble
		}
	}
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintln(w, reason)
}

// healthEndpoint serves readiness at an address.
type healthEndpoint struct {
	cfg   Config
	ready *Readiness
	asked string // as configured
	addr  string // as bound
	http  *http.Server
}

// open serves readiness before anything else is known.
func (h *healthEndpoint) open(ctx context.Context) error {
	return h.show(ctx, "--health-addr", cmp.Or(h.cfg.Bind.Health, DefaultHealthAddr))
}

// move switches to the configured address, if it differs.
func (h *healthEndpoint) move(ctx context.Context, addr string) error {
	if addr == h.asked {
		return nil
	}
	h.close()
	return h.show(ctx, "server.bind.health_addr", addr)
}

func (h *healthEndpoint) show(ctx context.Context, field, addr string) error {
	l, err := h.cfg.open(ctx, field, addr, rpc.ProbeConns())
	if err != nil {
		return err
	}
	srv := rpc.NewProbeServer(h.ready, slog.NewLogLogger(h.cfg.Logger.Handler(), slog.LevelDebug))
	srv.BaseContext = func(net.Listener) context.Context { return ctx }
	// It ends with close; if the listener breaks, the probe fails.
	go func() { _ = srv.Serve(l) }()
	h.asked, h.addr, h.http = addr, l.Addr().String(), srv
	return nil
}

func (h *healthEndpoint) close() { _ = h.http.Close() }
