package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/nstance/nstance/pkg/metrics"
	"github.com/nstance/nstance/pkg/rpc"
)

// serveMetrics serves the agent's metrics on addr, and its health at /healthz. An empty addr
// serves nothing. stop ends it.
func serveMetrics(ctx context.Context, addr string, t *tracker, version string) (stop func(), err error) {
	if addr == "" {
		return func() {}, nil
	}
	listener, err := rpc.Listen(ctx, envMetricsAddr, addr, rpc.ProbeConns())
	if err != nil {
		return nil, err
	}
	server := metrics.NewServer(newMetrics(t, version), map[string]http.Handler{"/healthz": http.HandlerFunc(t.answer)}, 0,
		slog.NewLogLogger(t.logger.Handler(), slog.LevelDebug))
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.logger.LogAttrs(ctx, slog.LevelError, "the metrics endpoint failed", slog.Any("error", err))
		}
	}()
	return func() {
		if err := server.Close(); err != nil {
			t.logger.LogAttrs(ctx, slog.LevelDebug, "closed the metrics endpoint", slog.Any("error", err))
		}
	}, nil
}

// Metrics describes the agent's metrics.
func Metrics() []metrics.Info { return newMetrics(&tracker{}, "").Infos() }

// newMetrics returns metrics that are read from the status.
func newMetrics(t *tracker, version string) *metrics.Plain {
	r := metrics.NewPlain(version)
	connected := r.Gauge("nstance_agent_connected", "1 while the agent is connected to the shard's leader.")
	state := r.Gauge("nstance_agent_state", "1 for the state that the agent is in, 0 for the others.", "state")
	expires := r.Gauge("nstance_agent_certificate_expiry_timestamp_seconds", "When the agent's certificate expires.")
	reports := r.Counter("nstance_agent_reports_total", "Health reports sent.")
	reported := r.Gauge("nstance_agent_last_report_timestamp_seconds", "When the last health report was sent.")
	disconnects := r.Counter("nstance_agent_disconnects_total", "Times that the connection to a server ended or could not be made.")
	streams := r.Gauge("nstance_agent_streams", "Open streams.")
	files := r.Gauge("nstance_agent_files", "Received files, as last reported.", "state")
	fileExpires := r.Gauge("nstance_agent_file_expiry_timestamp_seconds", "When the first of the received certificates expires.")
	r.OnScrape(func(s *metrics.Sample) {
		now, ended := t.counted()
		s.SetBool(connected, now.State == StateConnected)
		for _, one := range states() {
			s.SetBool(state, now.State == one, string(one))
		}
		if now.CertificateExpiresAt != nil {
			s.Set(expires, float64(now.CertificateExpiresAt.Unix()))
		}
		if last := now.LastReport; last != nil {
			s.Set(reports, float64(last.Sequence))
			s.Set(reported, float64(last.At.UnixMilli())/1000)
		}
		s.Set(disconnects, float64(ended))
		open := 0
		for _, text := range now.Streams {
			if text == streamOpen {
				open++
			}
		}
		s.Set(streams, float64(open))
		byState, first := sumFiles(now.Files)
		for _, one := range []string{filePresent, fileMissing, fileFailed} {
			s.Set(files, float64(byState[one]), one)
		}
		if first > 0 {
			s.Set(fileExpires, float64(first))
		}
	})
	return r
}

// sumFiles counts files by state, and returns when the first certificate among them expires, in
// seconds since 1970; 0 if there is none.
func sumFiles(all []FileStatus) (byState map[string]int, first int64) {
	byState = map[string]int{}
	for _, f := range all {
		byState[f.State]++
		if f.ExpiresAt != nil && (first == 0 || f.ExpiresAt.Unix() < first) {
			first = f.ExpiresAt.Unix()
		}
	}
	return byState, first
}
