package measure_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/nstance/nstance/pkg/metrics/prometheus"
	"github.com/nstance/nstance/pkg/server/measure"
)

// BenchmarkScrape is a scrape of the most groups that have series, without reading their state.
func BenchmarkScrape(b *testing.B) {
	state := full(measure.MaxGroups)
	r := prometheus.New("v1", map[string]string{"shard": "a"})
	measure.New(r, nil, func() measure.State { return state })
	b.ReportAllocs()
	size := 0
	for b.Loop() {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		size = w.Body.Len()
	}
	b.ReportMetric(float64(size), "B/scrape")
}
