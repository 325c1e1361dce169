package tracing

import (
	"context"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Header is the header, and metadata key, of a caller's span, as W3C's Trace Context defines it.
const Header = "traceparent"

// Remote returns a context whose spans are children of the one that a traceparent names. A text
// that is not one is ignored, as W3C's Trace Context demands.
func Remote(ctx context.Context, traceparent string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{Header: traceparent})
}

// incoming returns the context of the gRPC caller's span; not valid if it sent none.
func incoming(ctx context.Context) trace.SpanContext {
	sent := metadata.ValueFromIncomingContext(ctx, Header)
	if len(sent) != 1 {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(Remote(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), sent[0]))
}

// Call starts the span of a gRPC call that this process serves, and returns the function that ends
// it. It is a child of the caller's span. Unless always is set, there is none if the caller sent none.
func (t *Tracer) Call(ctx context.Context, method string, always bool, attrs ...slog.Attr) (context.Context, func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	from := incoming(ctx)
	if !always && !from.IsValid() {
		return ctx, func(error) {}
	}
	return t.Start(trace.ContextWithRemoteSpanContext(ctx, from), Server, strings.TrimPrefix(method, "/"), attrs...)
}

// Text returns the span of ctx as a traceparent; empty if there is none that is recorded.
func Text(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[Header]
}

// Outgoing returns a context whose gRPC calls send the span of ctx, if there is one.
func Outgoing(ctx context.Context) context.Context {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if text := carrier[Header]; text != "" {
		return metadata.AppendToOutgoingContext(ctx, Header, text)
	}
	return ctx
}

// Sending returns an interceptor for a client whose calls send the span of their context.
func Sending() grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, req, answer any, conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption,
	) error {
		return call(Outgoing(ctx), method, req, answer, conn, options...)
	}
}
