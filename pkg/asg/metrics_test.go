package asg_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/asg"
	"github.com/nstance/nstance/pkg/freeport"
	"github.com/nstance/nstance/pkg/metrics/metricstest"
)

// TestMetrics uses real time, because it needs a socket.
func TestMetrics(t *testing.T) {
	ports, err := freeport.Find(1)
	if err != nil {
		t.Fatal(err)
	}
	addr := freeport.Address(ports[0])
	f := newMachine(t)
	f.set(200)
	f.start(t, asg.DefaultLostAfter, "", func(c *asg.Config) { c.MetricsAddr, c.Every = addr, 100*time.Millisecond })
	var now metricstest.Scrape
	const healthy = `nstance_asg_checks_total{asg="g",seen="healthy"}`
	for deadline := time.Now().Add(time.Minute); now.Values[healthy] < 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no check is counted: %v\n%s", err, now.Text)
		}
		now, err = metricstest.Get(http.DefaultClient, "http://"+addr+"/metrics")
	}
	now.Lint(t)
	for name, want := range map[string]float64{
		`nstance_asg_server_healthy{asg="g"}`: 1, `nstance_asg_server_silence_seconds{asg="g"}`: 0,
		`nstance_asg_replacement_requested{asg="g"}`: 0,
		`nstance_asg_call_failures_total{asg="g"}`:   0,
	} {
		if got, ok := now.Values[name]; !ok || got != want {
			t.Errorf("%s is %v (%t), want %v", name, got, ok, want)
		}
	}
	for _, i := range asg.Metrics() {
		if now.Help[i.Name] != i.Help {
			t.Errorf("%s is described as %q, and served as %q", i.Name, i.Help, now.Help[i.Name])
		}
	}
	if err := f.end(); err != nil {
		t.Error(err)
	}

	taken, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for bad, want := range map[string]string{
		addr: "--metrics-addr: ", "9466": `--metrics-addr: "9466" is not valid: want host:port`,
		"localhost:http": "is not valid", ":99999": "is not valid",
	} {
		f := newMachine(t)
		f.start(t, asg.DefaultLostAfter, "", func(c *asg.Config) { c.MetricsAddr = bad })
		if err := f.wait(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: ended with %v, want %s", bad, err, want)
		}
	}
}
