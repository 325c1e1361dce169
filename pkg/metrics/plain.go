package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Metric is a metric of a Plain.
type Metric struct{ info Info }

// Plain is the metrics of a small program. Metrics are added before it is served; apart from that
// it is safe for concurrent use.
type Plain struct {
	fixed   []string // labels of all metrics but those of the process, as name and value
	metrics []*Metric
	reads   []func(*Sample)
	handler http.Handler
}

// NewPlain returns metrics with nstance_build_info and a few of the process. fixed are the names
// and values of labels that are added to all others.
func NewPlain(version string, fixed ...string) *Plain {
	p := &Plain{fixed: fixed}
	p.handler = Handler(p.text)
	build := p.Gauge("nstance_build_info", "Always 1, with the version of the program and of Go.", "version", "goversion")
	p.OnScrape(func(s *Sample) { s.Set(build, 1, version, runtime.Version()) })
	p.addProcess(time.Now())
	return p
}

// addProcess adds the metrics of the process by the names that Prometheus' libraries give them.
func (p *Plain) addProcess(started time.Time) {
	goroutines := &Metric{Info{"go_goroutines", TypeGauge, "Number of goroutines that currently exist.", nil}}
	start := &Metric{Info{"process_start_time_seconds", TypeGauge, "Start time of the process since unix epoch in seconds.", nil}}
	memory := &Metric{Info{"process_resident_memory_bytes", TypeGauge, "Resident memory size in bytes.", nil}}
	p.metrics = append(p.metrics, goroutines, start, memory)
	p.OnScrape(func(s *Sample) {
		s.Set(goroutines, float64(runtime.NumGoroutine()))
		s.Set(start, float64(started.UnixMilli())/1000)
		if bytes, ok := residentMemory(); ok {
			s.Set(memory, bytes)
		}
	})
}

// residentMemory returns the resident memory of this process, where the system has it in /proc.
func residentMemory() (inBytes float64, ok bool) {
	text, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseUint(fields[1], 10, 63)
	return float64(pages) * float64(os.Getpagesize()), err == nil
}

// Gauge adds a metric that goes up and down.
func (p *Plain) Gauge(name, help string, labels ...string) *Metric {
	return p.add(Info{name, TypeGauge, help, labels})
}

// Counter adds a metric that only grows, and whose value the program keeps.
func (p *Plain) Counter(name, help string, labels ...string) *Metric {
	return p.add(Info{name, TypeCounter, help, labels})
}

func (p *Plain) add(i Info) *Metric {
	m := &Metric{i}
	p.metrics = append(p.metrics, m)
	return m
}

// OnScrape has read called at each scrape. It must not block, and may be called by several
// goroutines.
func (p *Plain) OnScrape(read func(*Sample)) { p.reads = append(p.reads, read) }

// Infos returns the program's metrics, sorted by name, without those of the process.
func (p *Plain) Infos() (infos []Info) {
	for _, m := range p.metrics {
		if strings.HasPrefix(m.info.Name, "nstance_") {
			infos = append(infos, m.info)
		}
	}
	return Sorted(infos)
}

// ServeHTTP answers with all metrics in Prometheus' text format.
func (p *Plain) ServeHTTP(w http.ResponseWriter, req *http.Request) { p.handler.ServeHTTP(w, req) }

// Sample receives the values of one scrape.
type Sample struct {
	fixed  []string
	series map[*Metric][]string
	seen   map[string]bool
	errs   []error
}

// Set sets the value of a metric with the values of its labels. Each combination of them is set
// at most once in a scrape; otherwise the scrape fails.
func (s *Sample) Set(m *Metric, value float64, labels ...string) {
	if len(labels) != len(m.info.Labels) {
		s.errs = append(s.errs, fmt.Errorf("%s has %d labels, and was set with %d", m.info.Name, len(m.info.Labels), len(labels)))
		return
	}
	var pairs []string
	for n, name := range m.info.Labels {
		pairs = append(pairs, name+`="`+quoted(labels[n], true)+`"`)
	}
	if strings.HasPrefix(m.info.Name, "nstance_") {
		for n := 0; n+1 < len(s.fixed); n += 2 {
			pairs = append(pairs, s.fixed[n]+`="`+quoted(s.fixed[n+1], true)+`"`)
		}
	}
	series := m.info.Name
	if len(pairs) > 0 {
		series += "{" + strings.Join(pairs, ",") + "}"
	}
	if s.seen[series] {
		s.errs = append(s.errs, fmt.Errorf("%s was set twice", series))
		return
	}
	s.seen[series] = true
	s.series[m] = append(s.series[m], series+" "+strconv.FormatFloat(value, 'g', -1, 64)+"\n")
}

// SetBool sets a metric to 1 or 0.
func (s *Sample) SetBool(m *Metric, value bool, labels ...string) {
	number := 0.0
	if value {
		number = 1
	}
	s.Set(m, number, labels...)
}

// text returns all metrics. They are complete, or there is an error.
func (p *Plain) text() ([]byte, error) {
	s := &Sample{fixed: p.fixed, series: map[*Metric][]string{}, seen: map[string]bool{}}
	for _, read := range p.reads {
		read(s)
	}
	if len(s.errs) > 0 {
		return nil, errors.Join(s.errs...)
	}
	var out bytes.Buffer
	for _, m := range p.metrics {
		if len(s.series[m]) > 0 {
			fmt.Fprintf(&out, "# HELP %s %s\n# TYPE %s %s\n%s", m.info.Name, quoted(m.info.Help, false), m.info.Name, m.info.Type,
				strings.Join(s.series[m], ""))
		}
	}
	return out.Bytes(), nil
}

// quoted escapes a help text, or the value of a label, and replaces what is no UTF-8.
func quoted(text string, label bool) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(text)
	if label {
		text = strings.ReplaceAll(text, `"`, `\"`)
	}
	return text
}
