package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nstance/nstance/pkg/metrics"
	"github.com/nstance/nstance/pkg/metrics/metricstest"
)

// scrape returns the answer to one scrape.
func scrape(p *metrics.Plain) (code int, text string) {
	w := httptest.NewRecorder()
	metrics.NewServer(p, nil, 0, nil).Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Code, w.Body.String()
}

func TestPlain(t *testing.T) {
	p := metrics.NewPlain("v1.2.3", "asg", "g")
	size := p.Gauge("nstance_size", "The size, of \\ and\nmore.", "group")
	made := p.Counter("nstance_creates_total", "Creates.")
	n := 0.0
	p.OnScrape(func(s *metrics.Sample) { n++; s.Set(made, n); s.SetBool(size, true, "a"); s.Set(size, 1e21, "b") })
	for _, want := range []float64{1, 2} {
		code, text := scrape(p)
		got, err := metricstest.Parse(text)
		if err != nil || code != http.StatusOK {
			t.Fatalf("%d, %v:\n%s", code, err, text)
		}
		got.Lint(t)
		for name, want := range map[string]float64{
			`nstance_creates_total{asg="g"}`: want, `nstance_size{asg="g",group="a"}`: 1, `nstance_size{asg="g",group="b"}`: 1e21,
		} {
			if got.Values[name] != want {
				t.Errorf("%s is %v, want %v", name, got.Values[name], want)
			}
		}
		if got.Values["go_goroutines"] < 1 || got.Values["process_start_time_seconds"] < 1e9 || len(got.Of("nstance_build_info")) != 1 {
			t.Errorf("something of the process is missing:\n%s", text)
		}
		if got.Help["nstance_size"] != "The size, of \\ and\nmore." {
			t.Errorf("the help is %q", got.Help["nstance_size"])
		}
	}
	if infos := p.Infos(); len(infos) != 3 || infos[0].Name != "nstance_build_info" || infos[2].Type != metrics.TypeGauge {
		t.Errorf("the metrics are %+v", infos)
	}
}

// TestPlainFails: a series that is set twice, or without its labels, fails the whole scrape.
func TestPlainFails(t *testing.T) {
	for name, read := range map[string]func(*metrics.Sample, *metrics.Metric){
		"twice":           func(s *metrics.Sample, m *metrics.Metric) { s.Set(m, 1, "a"); s.Set(m, 1, "a") },
		"without a label": func(s *metrics.Sample, m *metrics.Metric) { s.Set(m, 1) },
	} {
		p := metrics.NewPlain("v1")
		m := p.Gauge("nstance_size", "The size.", "group")
		p.OnScrape(func(s *metrics.Sample) { read(s, m) })
		if code, text := scrape(p); code != http.StatusInternalServerError || strings.Contains(text, "nstance_build_info") {
			t.Errorf("%s: answered with %d %s", name, code, text)
		}
	}
}

// FuzzPlain: whatever a label has for its value, Prometheus reads the value back.
func FuzzPlain(f *testing.F) {
	for _, text := range []string{"", "a", `\"`, "\n", "\xff", `\n"} 1` + "\nnstance_other 2", "é\u0000"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p := metrics.NewPlain("v1", "asg", text)
		m := p.Gauge("nstance_size", "The size.", "group")
		p.OnScrape(func(s *metrics.Sample) { s.Set(m, 7, text) })
		_, body := scrape(p)
		got, err := metricstest.Parse(body)
		if err != nil {
			t.Fatalf("%q: %v in\n%s", text, err, body)
		}
		if !utf8.ValidString(text) {
			text = strings.ToValidUTF8(text, "\uFFFD")
		}
		if got.Values[`nstance_size{asg="`+text+`",group="`+text+`"}`] != 7 || len(got.Of("nstance_other")) > 0 {
			t.Errorf("%q is read as %v", text, got.Of("nstance_size"))
		}
	})
}
