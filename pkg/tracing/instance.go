package tracing

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// ids are the ids of a trace and of its first span.
type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

// ofInstance returns the ids of the trace of an instance's start, which follow from its id.
func ofInstance(instance string) (of ids) {
	sum := sha256.Sum256([]byte("nstance instance " + instance))
	copy(of.trace[:], sum[:16])
	copy(of.span[:], sum[16:24])
	return of
}

// InstanceTrace returns the id of the trace of an instance's start, in hexadecimal.
func InstanceTrace(instance string) string { return ofInstance(instance).trace.String() }

type chosenIDs struct{}

// ChosenIDs returns the ids that a span that is started with ctx must have, for the SDK's
// generator; ok is false if they are to be drawn.
func ChosenIDs(ctx context.Context) (t trace.TraceID, s trace.SpanID, ok bool) {
	of, ok := ctx.Value(chosenIDs{}).(ids)
	return of.trace, of.span, ok
}

// OfInstance returns a context whose spans are parts of the start of an instance. They are
// children of the caller's span if ctx is of a gRPC call that belongs to that trace, and is recorded, and
// otherwise of the trace's first span: a caller can't choose the trace.
func (t *Tracer) OfInstance(ctx context.Context, instance string) context.Context {
	if t == nil {
		return ctx
	}
	of := ofInstance(instance)
	parent := of.span
	if from := incoming(ctx); from.TraceID() == of.trace && from.IsSampled() {
		parent = from.SpanID()
	}
	flags := trace.TraceFlags(0).WithSampled(t.sampled(of.trace))
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: of.trace, SpanID: parent, TraceFlags: flags, Remote: true,
	}))
}

// Instance makes the first span of the trace of an instance's start, which contains all others.
// It is made when the start is over.
func (t *Tracer) Instance(instance, name string, from, to time.Time, err error, attrs ...slog.Attr) {
	if t == nil {
		return
	}
	ctx := context.WithValue(context.Background(), chosenIDs{}, ofInstance(instance))
	_, span := t.spans.Start(ctx, name, trace.WithNewRoot(), trace.WithTimestamp(from), trace.WithAttributes(convert(attrs)...))
	end(span, from, to, err)
}
