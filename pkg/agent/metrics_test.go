package agent_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/freeport"
	"github.com/nstance/nstance/pkg/metrics/metricstest"
)

// TestMetrics uses real time, because it needs a socket.
func TestMetrics(t *testing.T) {
	port := must(freeport.Find(1))(t)[0]
	taken := must(net.Listen("tcp", freeport.Address(port)))(t)
	f := newFixture(t)
	c := f.config()
	c.MetricsAddr = taken.Addr().String()
	err := agent.Run(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "NSTANCE_METRICS_ADDR: "+c.MetricsAddr+" is already in use") {
		t.Errorf("a taken port gives %v", err)
	}
	taken.Close()

	server := f.up("10.0.0.1")
	p := f.start(c)
	awaitHealth(t, c.MetricsAddr, http.StatusOK, "connected\n")
	now := awaitMetric(t, c.MetricsAddr, "nstance_agent_reports_total", 1)
	for name, want := range map[string]float64{
		"nstance_agent_connected": 1, `nstance_agent_state{state="connected"}`: 1, `nstance_agent_state{state="starting"}`: 0,
		`nstance_agent_files{state="failed"}`: 0,
	} {
		if got, ok := now.Values[name]; !ok || got != want {
			t.Errorf("%s is %v (%t), want %v", name, got, ok, want)
		}
	}
	if at := now.Values["nstance_agent_certificate_expiry_timestamp_seconds"]; at < float64(time.Now().Unix()) {
		t.Errorf("the certificate expires at %v", at)
	}
	described := map[string]bool{}
	for _, i := range agent.Metrics() {
		described[i.Name] = true
	}
	for name := range now.Help {
		if strings.HasPrefix(name, "nstance_") && !described[name] {
			t.Errorf("%s is served, and not described", name)
		}
	}
	server.down()
	awaitHealth(t, c.MetricsAddr, http.StatusServiceUnavailable, "connecting\n")
	if now = awaitMetric(t, c.MetricsAddr, "nstance_agent_connected", 0); now.Values["nstance_agent_disconnects_total"] < 1 {
		t.Errorf("no disconnect is counted:\n%s", now.Text)
	}
	p.end()
}

// awaitMetric waits up to a minute until a metric is at least want, or 0 if want is.
func awaitMetric(t *testing.T, addr, name string, want float64) metricstest.Scrape {
	t.Helper()
	said := "nothing"
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		got, err := metricstest.Get(http.DefaultClient, "http://"+addr+"/metrics")
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := got.Values[name]; ok && v >= want && (want > 0 || v == 0) {
			got.Lint(t)
			return got
		}
		said = fmt.Sprint(got.Values[name])
	}
	t.Fatalf("%s is %s, want %v", name, said, want)
	return metricstest.Scrape{}
}
