// Package metricstest reads metrics in tests as Prometheus does, and checks their names.
package metricstest

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Scrape is the answer to one scrape.
type Scrape struct {
	Text string
	// Values has each value by its series, such as nstance_leader{shard="a"}: the labels are
	// sorted. A histogram has _count and _sum, and no buckets.
	Values map[string]float64
	Help   map[string]string // by metric
}

// Get scrapes a URL.
func Get(client *http.Client, url string) (Scrape, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return Scrape{}, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return Scrape{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return Scrape{}, err
	}
	return Parse(string(text))
}

// Parse parses Prometheus' text format.
func Parse(text string) (Scrape, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return Scrape{}, err
	}
	s := Scrape{Text: text, Values: map[string]float64{}, Help: map[string]string{}}
	for name, f := range families {
		s.Help[name] = f.GetHelp()
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch {
			case m.GetHistogram() != nil:
				s.Values[series(name+"_count", labels)] = float64(m.GetHistogram().GetSampleCount())
				s.Values[series(name+"_sum", labels)] = m.GetHistogram().GetSampleSum()
			case m.GetCounter() != nil:
				s.Values[series(name, labels)] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				s.Values[series(name, labels)] = m.GetGauge().GetValue()
			}
		}
	}
	return s, nil
}

func series(name string, labels map[string]string) string {
	var text []string
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		text = append(text, label+`="`+labels[label]+`"`)
	}
	if len(text) == 0 {
		return name
	}
	return name + "{" + strings.Join(text, ",") + "}"
}

// Of returns the series of a metric.
func (s Scrape) Of(metric string) (all []string) {
	for name := range s.Values {
		if name == metric || strings.HasPrefix(name, metric+"{") {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// Lint fails the test for each metric that does not follow Prometheus' conventions.
func (s Scrape) Lint(t *testing.T) {
	t.Helper()
	found, err := promlint.New(strings.NewReader(s.Text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range found {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
