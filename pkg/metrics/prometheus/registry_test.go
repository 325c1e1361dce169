package prometheus_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/metrics"
	"github.com/nstance/nstance/pkg/metrics/metricstest"
	"github.com/nstance/nstance/pkg/metrics/prometheus"
)

// served is a registry with one metric of each type, on a real server.
func served(t *testing.T, read func(s *prometheus.Sample, size *prometheus.Metric)) (r *prometheus.Registry, url string) {
	t.Helper()
	r = prometheus.New("v1.2.3", map[string]string{"shard": "a"})
	size := r.Gauge("nstance_size", "The size.", "group")
	made := r.Tally("nstance_creates_total", "Creates.", "outcome")
	took := r.Histogram("nstance_call_duration_seconds", "Calls.", []float64{0.1, 1}, "call")
	made.Add(2, "made")
	took.Observe(500*time.Millisecond, "get")
	r.OnScrape(func(s *prometheus.Sample) { read(s, size) })
	srv := httptest.NewServer(metrics.NewServer(r, map[string]http.Handler{"/more": http.NotFoundHandler()}, 0, nil).Handler)
	t.Cleanup(srv.Close)
	return r, srv.URL
}

func TestScrape(t *testing.T) {
	n := 0.0
	r, url := served(t, func(s *prometheus.Sample, size *prometheus.Metric) {
		n++
		s.Set(size, n, `w"eb`)
		s.SetBool(size, true, "db")
	})
	for _, want := range []float64{1, 2} {
		got, err := metricstest.Get(http.DefaultClient, url+"/metrics")
		if err != nil {
			t.Fatal(err)
		}
		got.Lint(t)
		for name, want := range map[string]float64{
			`nstance_size{group="w"eb",shard="a"}`:                      want,
			`nstance_size{group="db",shard="a"}`:                        1,
			`nstance_creates_total{outcome="made",shard="a"}`:           2,
			`nstance_call_duration_seconds_count{call="get",shard="a"}`: 1,
			`nstance_call_duration_seconds_sum{call="get",shard="a"}`:   0.5,
		} {
			if got.Values[name] != want {
				t.Errorf("%s is %v, want %v", name, got.Values[name], want)
			}
		}
		if len(got.Of("nstance_build_info")) != 1 || len(got.Of("go_goroutines")) != 1 {
			t.Errorf("nothing says of what build the program is, and what it runs:\n%s", got.Text)
		}
	}
	if infos := r.Infos(); len(infos) != 4 || infos[0].Name != "nstance_build_info" || infos[3].Type != metrics.TypeGauge {
		t.Errorf("the metrics are %+v", infos)
	}
}

// TestRequests: whatever else is requested is refused, and nothing is served for it.
func TestRequests(t *testing.T) {
	_, url := served(t, func(s *prometheus.Sample, size *prometheus.Metric) { s.Set(size, 1, "web") })
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{"GET", "/metrics", 200}, {"HEAD", "/metrics", 200}, {"GET", "/metrics?name[]=x", 200},
		{"POST", "/metrics", 405}, {"PUT", "/metrics", 405}, {"DELETE", "/metrics", 405}, {"OPTIONS", "/metrics", 405},
		{"PATCH", "/metrics", 405},
		{"GET", "/", 404}, {"GET", "/metrics/", 404}, {"GET", "/metrics/../etc/passwd", 404}, {"GET", "/debug/pprof/", 404},
		{"GET", "/more", 404}, {"POST", "/more", 405}, {"TRACE", "/metrics", 405},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, url+c.path, strings.NewReader(strings.Repeat("x", 100)))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultTransport.RoundTrip(req) // follows no redirect
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.code && (resp.StatusCode != http.StatusTemporaryRedirect || c.code != 404) {
			t.Errorf("%s %s is answered with %d, want %d", c.method, c.path, resp.StatusCode, c.code)
		}
		if c.method == "HEAD" && (len(body) != 0 || resp.ContentLength <= 0) {
			t.Errorf("HEAD is answered with %d bytes, and says %d", len(body), resp.ContentLength)
		}
	}
}

// TestBrokenScrape: a series that is there twice is an error, never half of the metrics.
func TestBrokenScrape(t *testing.T) {
	for name, read := range map[string]func(s *prometheus.Sample, size *prometheus.Metric){
		"twice":           func(s *prometheus.Sample, size *prometheus.Metric) { s.Set(size, 1, "web"); s.Set(size, 2, "web") },
		"without a label": func(s *prometheus.Sample, size *prometheus.Metric) { s.Set(size, 1) },
	} {
		_, url := served(t, read)
		resp, err := http.Get(url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusInternalServerError || strings.Contains(string(body), "nstance_creates_total") {
			t.Errorf("%s: answered with %d %s", name, resp.StatusCode, body)
		}
	}
}

// TestManyScrapes: scrapes beyond the limit are refused, and the next one is answered again.
func TestManyScrapes(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	_, url := served(t, func(*prometheus.Sample, *prometheus.Metric) { entered <- struct{}{}; <-leave })
	codes := make(chan int)
	get := func() {
		resp, err := http.Get(url + "/metrics")
		if err != nil {
			t.Error(err)
			codes <- 0
			return
		}
		resp.Body.Close()
		codes <- resp.StatusCode
	}
	for range 2 {
		go get()
		<-entered
	}
	go get()
	if code := <-codes; code != http.StatusServiceUnavailable {
		t.Errorf("a third scrape is answered with %d", code)
	}
	close(leave)
	for range 2 {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("a scrape within the limit is answered with %d", code)
		}
	}
}
