package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/nstance/nstance/pkg/metrics"
	"github.com/nstance/nstance/pkg/metrics/prometheus"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/measure"
)

// metricsEndpoint serves the metrics, of a standby too, from the boot on.
type metricsEndpoint struct {
	cfg      Config
	registry *prometheus.Registry
	http     *http.Server // nil: not open
}

// newMetrics returns the server's metrics, and the endpoint that serves them.
func (s *Server) newMetrics() (*measure.Server, metricsEndpoint) {
	r := prometheus.New(s.cfg.Version, map[string]string{"shard": s.cfg.Shard})
	return measure.New(r, s.cfg.Tracer, s.state), metricsEndpoint{cfg: s.cfg, registry: r}
}

// longestProfile is how long a profile may take.
const longestProfile = 3 * time.Minute

// open serves the metrics at an address. It is a no-op if the address is empty, or one is open
// already: that of the flag is opened before the config is read.
func (e *metricsEndpoint) open(ctx context.Context, field, addr string) error {
	if addr == "" || e.http != nil {
		return nil
	}
	l, err := e.cfg.open(ctx, field, addr, rpc.ProbeConns())
	if err != nil {
		return err
	}
	var more map[string]http.Handler
	longest := time.Duration(0)
	if e.cfg.Debug {
		more, longest = profiles(), longestProfile
	}
	e.http = metrics.NewServer(e.registry, more, longest, slog.NewLogLogger(e.cfg.Logger.Handler(), slog.LevelDebug))
	e.http.BaseContext = func(net.Listener) context.Context { return ctx }
	e.cfg.Logger.Info("serving metrics", slog.String("addr", l.Addr().String()), slog.Bool("profiles", e.cfg.Debug))
	// It ends with close; if the listener breaks, scrapes fail.
	go func() { _ = e.http.Serve(l) }()
	return nil
}

func (e *metricsEndpoint) close() {
	if e.http != nil {
		_ = e.http.Close()
	}
}

// profiles are the handlers of Go's profiles, by path.
func profiles() map[string]http.Handler {
	return map[string]http.Handler{
		"/debug/pprof/":        http.HandlerFunc(pprof.Index),
		"/debug/pprof/cmdline": http.HandlerFunc(pprof.Cmdline),
		"/debug/pprof/profile": http.HandlerFunc(pprof.Profile),
		"/debug/pprof/symbol":  http.HandlerFunc(pprof.Symbol),
		"/debug/pprof/trace":   http.HandlerFunc(pprof.Trace),
	}
}

// state returns what the metrics show, from memory.
func (s *Server) state() measure.State {
	now := measure.State{Ready: s.ready.isReady(), Audit: s.audit.Tallies(), AuditOmitted: s.audit.LeftOut()}
	now.Handshaking, now.Waiting = s.handshakes.Load()
	if !s.booted.Load() {
		return now
	}
	now.CAExpires, now.ServerExpires = s.trust.CA.Certificate().NotAfter, s.trust.source.Keypair().Certificate().NotAfter
	now.Issued = s.trust.CA.Issued()
	now.AgentStreams, now.Watches = s.services.agents.Streams(), s.services.operators.Watches()
	if record, known := s.elector.Leader(); known {
		now.Epoch = record.Epoch
	}
	if t := s.current.Load(); t != nil {
		now.Term = t.Measure()
	}
	return now
}
