// Package otlptest receives spans in tests: from a tracer of the same process (Recorder), or as a
// collector that processes export to (Collector).
package otlptest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Span is a span that was received.
type Span struct {
	Name, Trace, ID string
	Parent          string // empty: the first span of its trace
	Kind            string // internal, client or server
	From, To        time.Time
	Err             string            // empty: it did not fail
	Attributes      map[string]string // of the span
	Resource        map[string]string // of its process
}

// Spans is a set of received spans. Safe for concurrent use.
type Spans struct {
	mu  sync.Mutex
	all []Span
}

func (s *Spans) add(more ...Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, more...)
}

// Forget drops all spans.
func (s *Spans) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = nil
}

// Of returns the spans of a trace, in the order of their begin.
func (s *Spans) Of(trace string) []Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := slices.DeleteFunc(slices.Clone(s.all), func(one Span) bool { return one.Trace != trace })
	slices.SortStableFunc(of, func(a, b Span) int { return a.From.Compare(b.From) })
	return of
}

// Named returns the spans with a name.
func (s *Spans) Named(name string) []Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.all), func(one Span) bool { return one.Name != name })
}

// Tree returns the spans of a trace as lines, each after its parent and indented below it; a span whose parent
// was not received has a question mark.
func (s *Spans) Tree(trace string) string {
	all, known := s.Of(trace), map[string]bool{"": true}
	for _, one := range all {
		known[one.ID] = true
	}
	var lines []string
	var below func(parent, indent string)
	below = func(parent, indent string) {
		for _, one := range all {
			switch {
			case one.Parent == parent:
				lines = append(lines, indent+one.Name)
				below(one.ID, indent+"  ")
			case parent == "" && !known[one.Parent]:
				lines = append(lines, "? "+one.Name)
				below(one.ID, "  ")
			}
		}
	}
	below("", "")
	return strings.Join(lines, "\n")
}

// Recorder is an exporter that keeps what it gets.
type Recorder struct{ Spans }

var _ sdktrace.SpanExporter = (*Recorder)(nil)

// ExportSpans implements sdktrace.SpanExporter.
func (r *Recorder) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, one := range spans {
		got := Span{
			Name: one.Name(), Trace: one.SpanContext().TraceID().String(), ID: one.SpanContext().SpanID().String(),
			Kind: one.SpanKind().String(), From: one.StartTime(), To: one.EndTime(), Err: one.Status().Description,
			Attributes: map[string]string{}, Resource: map[string]string{},
		}
		if one.Parent().HasSpanID() {
			got.Parent = one.Parent().SpanID().String()
		}
		for _, a := range one.Attributes() {
			got.Attributes[string(a.Key)] = a.Value.String()
		}
		for _, a := range one.Resource().Attributes() {
			got.Resource[string(a.Key)] = a.Value.String()
		}
		if one.EndTime().Before(one.StartTime()) {
			return fmt.Errorf("span %s ends before it begins", one.Name())
		}
		r.add(got)
	}
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (*Recorder) Shutdown(context.Context) error { return nil }
