// Package prometheus keeps metrics with Prometheus' client library: with histograms, and with all
// metrics of the Go runtime and the process.
package prometheus

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"github.com/nstance/nstance/pkg/metrics"
)

// Metric is a metric whose values are read at each scrape.
type Metric struct {
	desc *client.Desc
	kind client.ValueType
}

// Registry is the metrics of one program. Metrics are added before it is served; apart from that
// it is safe for concurrent use.
type Registry struct {
	own     *client.Registry
	with    client.Registerer // own, with the labels of the program
	fixed   client.Labels
	infos   []metrics.Info
	reads   []func(*Sample)
	handler http.Handler
}

// New returns a registry with the metrics of the Go runtime and the process, and
// nstance_build_info. labels are added to all metrics but these two kinds.
func New(version string, labels map[string]string) *Registry {
	r := &Registry{own: client.NewRegistry(), fixed: labels}
	r.handler = metrics.Handler(r.text)
	r.with = client.WrapRegistererWith(labels, r.own)
	r.own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), r)
	build := r.Gauge("nstance_build_info", "Always 1, with the version of the program and of Go.", "version", "goversion")
	r.OnScrape(func(s *Sample) { s.Set(build, 1, version, runtime.Version()) })
	return r
}

// Gauge adds a metric that goes up and down.
func (r *Registry) Gauge(name, help string, labels ...string) *Metric {
	return r.add(metrics.Info{Name: name, Type: metrics.TypeGauge, Help: help, Labels: labels}, client.GaugeValue)
}

// Counter adds a metric that only grows, and whose value the program keeps.
func (r *Registry) Counter(name, help string, labels ...string) *Metric {
	return r.add(metrics.Info{Name: name, Type: metrics.TypeCounter, Help: help, Labels: labels}, client.CounterValue)
}

func (r *Registry) add(i metrics.Info, kind client.ValueType) *Metric {
	r.infos = append(r.infos, i)
	return &Metric{client.NewDesc(i.Name, i.Help, i.Labels, r.fixed), kind}
}

// OnScrape has read called at each scrape. It must not block, and may be called by several
// goroutines.
func (r *Registry) OnScrape(read func(*Sample)) { r.reads = append(r.reads, read) }

// Infos returns the program's metrics, sorted by name, without those of the runtime and the
// process.
func (r *Registry) Infos() []metrics.Info {
	return metrics.Sorted(r.infos)
}

// ServeHTTP answers with all metrics in Prometheus' text format.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) { r.handler.ServeHTTP(w, req) }

// text returns all metrics. They are complete, or there is an error.
func (r *Registry) text() ([]byte, error) {
	families, err := r.own.Gather()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := expfmt.NewEncoder(&out, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return nil, fmt.Errorf("encode %s: %w", f.GetName(), err)
		}
	}
	return out.Bytes(), nil
}

// Describe implements the library's Collector. Which values there are is known at a scrape only.
func (r *Registry) Describe(chan<- *client.Desc) {}

// Collect implements the library's Collector.
func (r *Registry) Collect(out chan<- client.Metric) {
	s := &Sample{out: out}
	for _, read := range r.reads {
		read(s)
	}
}

// Sample receives the values of one scrape.
type Sample struct{ out chan<- client.Metric }

// Set sets the value of a metric with the values of its labels. Each combination of them is set
// at most once in a scrape; otherwise the scrape fails.
func (s *Sample) Set(m *Metric, value float64, labels ...string) {
	one, err := client.NewConstMetric(m.desc, m.kind, value, labels...)
	if err != nil {
		one = client.NewInvalidMetric(m.desc, err)
	}
	s.out <- one
}

// SetBool sets a metric to 1 or 0.
func (s *Sample) SetBool(m *Metric, value bool, labels ...string) {
	number := 0.0
	if value {
		number = 1
	}
	s.Set(m, number, labels...)
}

// Tally counts events by the values of labels, of which there are few.
type Tally struct{ vec *client.CounterVec }

// Tally adds a counter that the registry keeps.
func (r *Registry) Tally(name, help string, labels ...string) *Tally {
	t := &Tally{client.NewCounterVec(client.CounterOpts{Name: name, Help: help}, labels)}
	r.infos = append(r.infos, metrics.Info{Name: name, Type: metrics.TypeCounter, Help: help, Labels: labels})
	r.with.MustRegister(t.vec)
	return t
}

// Add counts n events.
func (t *Tally) Add(n int, labels ...string) { t.vec.WithLabelValues(labels...).Add(float64(n)) }

// Histogram counts durations in buckets, by the values of labels, of which there are few.
type Histogram struct{ vec *client.HistogramVec }

// Histogram adds a histogram. buckets are the upper bounds, in seconds.
func (r *Registry) Histogram(name, help string, buckets []float64, labels ...string) *Histogram {
	h := &Histogram{client.NewHistogramVec(client.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)}
	r.infos = append(r.infos, metrics.Info{Name: name, Type: metrics.TypeHistogram, Help: help, Labels: labels})
	r.with.MustRegister(h.vec)
	return h
}

// Observe counts one duration.
func (h *Histogram) Observe(d time.Duration, labels ...string) {
	h.vec.WithLabelValues(labels...).Observe(d.Seconds())
}
