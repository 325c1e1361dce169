package tracing

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Tracer makes spans. The methods of a nil Tracer make none. Safe for concurrent use.
type Tracer struct {
	spans   trace.Tracer
	sampled func(trace.TraceID) bool
	now     func() time.Time
}

// New returns a tracer. sampled reports whether a trace that begins here is recorded; spans has to
// decide likewise, and to take its ids from ChosenIDs.
func New(spans trace.Tracer, sampled func(trace.TraceID) bool, now func() time.Time) *Tracer {
	return &Tracer{spans: spans, sampled: sampled, now: now}
}

// Kind is a span's relation to those of other processes.
type Kind = trace.SpanKind

// Kinds.
const (
	Internal = trace.SpanKindInternal
	Client   = trace.SpanKindClient // calls another process
	Server   = trace.SpanKindServer // is called by another process
)

// Start starts a span, and returns a context whose spans are its children, and the function that
// ends it, with the error that it ended with.
func (t *Tracer) Start(ctx context.Context, kind Kind, name string, attrs ...slog.Attr) (context.Context, func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	began := t.now()
	ctx, span := t.spans.Start(ctx, name, trace.WithTimestamp(began), trace.WithSpanKind(kind), trace.WithAttributes(convert(attrs)...))
	// A step of the clock meanwhile does not count.
	return ctx, func(err error) { end(span, began, began.Add(t.now().Sub(began)), err) }
}

// Past makes a span that is over already, if ctx belongs to a trace.
func (t *Tracer) Past(ctx context.Context, kind Kind, name string, from, to time.Time, err error, attrs ...slog.Attr) {
	if t == nil || !trace.SpanContextFromContext(ctx).IsSampled() {
		return
	}
	_, span := t.spans.Start(ctx, name, trace.WithTimestamp(from), trace.WithSpanKind(kind), trace.WithAttributes(convert(attrs)...))
	end(span, from, to, err)
}

// Names of attributes, also of a process's own.
const (
	AttrInstance = "nstance.instance"
	AttrGroup    = "nstance.group"
	AttrTenant   = "nstance.tenant"
	AttrShard    = "nstance.shard"
)

// maxText is the maximum length of an error's text and of an attribute, in bytes.
const maxText = 1 << 10

// end ends a span. A time before its begin, as of another machine's clock, counts as the begin.
func end(span trace.Span, from, to time.Time, err error) {
	if err != nil {
		span.SetStatus(codes.Error, limited(err.Error()))
	}
	if to.Before(from) {
		to = from
	}
	span.End(trace.WithTimestamp(to))
}

func convert(attrs []slog.Attr) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, len(attrs))
	for _, a := range attrs {
		switch v := a.Value.Resolve(); v.Kind() {
		case slog.KindBool:
			all = append(all, attribute.Bool(a.Key, v.Bool()))
		case slog.KindInt64:
			all = append(all, attribute.Int64(a.Key, v.Int64()))
		default:
			if text := v.String(); text != "" {
				all = append(all, attribute.String(a.Key, limited(text)))
			}
		}
	}
	return all
}

// limited returns a text that a collector accepts: of valid UTF-8, and not too long.
func limited(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}
