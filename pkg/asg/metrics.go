package asg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/nstance/nstance/pkg/metrics"
)

// shown is the part of a watch that its metrics show. Safe for concurrent use.
type shown struct {
	mu       sync.Mutex
	seen     Seen
	looked   bool
	state    State
	checks   map[Seen]uint64
	failures uint64 // of calls to AWS
}

func (s *shown) checked(seen Seen, state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.checks == nil {
		s.checks = map[Seen]uint64{}
	}
	s.checks[seen]++
	s.looked, s.seen, s.state = true, seen, state
}

// acted records a call to AWS, and the state after it.
func (s *shown) acted(state State, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
	if err != nil && !errors.Is(err, errInactive) {
		s.failures++
	}
}

// Metrics describes the metrics of nstance-asg.
func Metrics() []metrics.Info { return newMetrics(&shown{}, Config{}).Infos() }

// newMetrics returns metrics that are read from s.
func newMetrics(s *shown, cfg Config) *metrics.Plain {
	r := metrics.NewPlain(cfg.Version, "asg", cfg.Group)
	healthy := r.Gauge("nstance_asg_server_healthy", "1 if the server was healthy at the last check.")
	silence := r.Gauge("nstance_asg_server_silence_seconds", "For how long the server has not answered, as far as it was watched.")
	completed := r.Gauge("nstance_asg_hook_completed", "1 once the launch hook is completed, or if there is none.")
	replaced := r.Gauge("nstance_asg_replacement_requested", "1 once the group was asked to replace this machine.")
	checks := r.Counter("nstance_asg_checks_total", "Health checks, by what was seen.", "seen")
	failures := r.Counter("nstance_asg_call_failures_total", "Calls to Auto Scaling that failed.")
	r.OnScrape(func(sample *metrics.Sample) {
		s.mu.Lock()
		defer s.mu.Unlock()
		sample.SetBool(healthy, s.looked && s.seen == Healthy)
		sample.Set(silence, s.state.Silence.Seconds())
		sample.SetBool(completed, s.state.Completed)
		sample.SetBool(replaced, s.state.Replaced)
		for seen, name := range map[Seen]string{Healthy: "healthy", Ill: "ill", Silent: "silent"} {
			sample.Set(checks, float64(s.checks[seen]), name)
		}
		sample.Set(failures, float64(s.failures))
	})
	return r
}

// serveMetrics serves the metrics at cfg.MetricsAddr; empty: nowhere. stop ends it.
func serveMetrics(ctx context.Context, cfg Config, s *shown) (stop func(), err error) {
	if cfg.MetricsAddr == "" {
		return func() {}, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.MetricsAddr)
	if err != nil {
		return nil, fmt.Errorf("--metrics-addr: %w", err)
	}
	server := metrics.NewServer(newMetrics(s, cfg), nil, 0, slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug))
	cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "serving metrics", slog.String("addr", listener.Addr().String()))
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			cfg.Logger.LogAttrs(ctx, slog.LevelError, "the metrics endpoint failed", slog.Any("error", err))
		}
	}()
	return func() { _ = server.Close() }, nil
}

// checkMetricsAddr refuses an address that can't be listened on. An empty one is valid.
func checkMetricsAddr(addr string) error {
	if addr == "" {
		return nil
	}
	if _, port, err := net.SplitHostPort(addr); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err == nil {
			return nil
		}
	}
	return fmt.Errorf("--metrics-addr: %.80q is not valid: want host:port, such as 127.0.0.1:9466", addr)
}
