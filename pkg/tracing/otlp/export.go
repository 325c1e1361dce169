package otlp

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/nstance/nstance/pkg/tracing"
)

// Config is what Open needs.
type Config struct {
	Service string // the default of OTEL_SERVICE_NAME
	Version string
	// Attributes describe the process further, such as the shard of a server.
	Attributes map[string]string
	Getenv     func(string) string // os.Getenv: the SDK reads the process's variables itself
	Now        func() time.Time
	Logger     *slog.Logger
}

// flushTimeout bounds the export of the last spans when a process ends. A supervisor that stops the
// process does not wait for long.
const flushTimeout = 2 * time.Second

// Open returns the tracer that the environment asks for, nil if it asks for none, and a function
// that exports what is left and ends the export, for two seconds at most. The error names each variable that is not valid. A
// collector that does not answer is no error: it costs spans, of which at most OTEL_BSP_MAX_QUEUE_SIZE
// are kept, and nothing else.
func Open(ctx context.Context, cfg Config) (t *tracing.Tracer, closing func(), err error) {
	s, err := read(cfg.Getenv)
	if err != nil || !s.on {
		return nil, func() {}, err
	}
	report(cfg.Logger, cfg.Now)
	exporter, err := s.exporter(ctx)
	if err != nil {
		return nil, func() {}, fmt.Errorf("export traces: %w", err)
	}
	described, err := describe(ctx, cfg)
	if err != nil { // the rest of it is used
		cfg.Logger.Warn("traces lack attributes", slog.Any("error", err))
	}
	cfg.Logger.Info("exporting traces", slog.String("protocol", s.protocol))
	t, provider := newTracer(s, cfg.Now, sdktrace.WithBatcher(exporter, s.batches...), sdktrace.WithResource(described))
	return t, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			cfg.Logger.Warn("could not export the last traces", slog.Any("error", err))
		}
	}, nil
}

// Recorded returns a tracer that records every trace, for tests: each span is exported when it ends.
func Recorded(to sdktrace.SpanExporter, now func() time.Time) *tracing.Tracer {
	t, _ := newTracer(settings{begin: sdktrace.AlwaysSample(), sampler: sdktrace.AlwaysSample()}, now, sdktrace.WithSyncer(to))
	return t
}

// Sampled is Recorded with the sampler that an environment asks for.
func Sampled(to sdktrace.SpanExporter, now func() time.Time, env map[string]string) (*tracing.Tracer, error) {
	s, err := read(func(name string) string { return env[name] })
	if err != nil {
		return nil, err
	}
	t, _ := newTracer(s, now, sdktrace.WithSyncer(to))
	return t, nil
}

func newTracer(s settings, now func() time.Time, options ...sdktrace.TracerProviderOption) (*tracing.Tracer, *sdktrace.TracerProvider) {
	provider := sdktrace.NewTracerProvider(append(options, sdktrace.WithSampler(s.sampler), sdktrace.WithIDGenerator(ids{}))...)
	sampled := func(id trace.TraceID) bool {
		return s.begin.ShouldSample(sdktrace.SamplingParameters{TraceID: id}).Decision == sdktrace.RecordAndSample
	}
	return tracing.New(provider.Tracer("github.com/nstance/nstance"), sampled, now), provider
}

func (s settings) exporter(ctx context.Context) (*otlptrace.Exporter, error) {
	if s.protocol == protocolGRPC {
		return otlptracegrpc.New(ctx)
	}
	return otlptracehttp.New(ctx)
}

// describe returns what every span says about the process; what the environment says takes
// precedence.
func describe(ctx context.Context, cfg Config) (*resource.Resource, error) {
	own := []attribute.KeyValue{attribute.String("service.name", cfg.Service), attribute.String("service.version", cfg.Version)}
	for name, value := range cfg.Attributes {
		own = append(own, attribute.String(name, value))
	}
	return resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(own...), resource.WithFromEnv())
}

// reportEvery is how often a failing export is logged at most.
const reportEvery = time.Minute

// report has the SDK log to a logger: it has one handler of errors in a process.
func report(log *slog.Logger, now func() time.Time) {
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	failures := &failures{log: log, now: now}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(failures.add))
}

// ids chooses the ids of spans: those that the context demands, or random ones.
type ids struct{}

var _ sdktrace.IDGenerator = ids{}

// NewIDs implements sdktrace.IDGenerator.
func (ids) NewIDs(ctx context.Context) (t trace.TraceID, s trace.SpanID) {
	if t, s, ok := tracing.ChosenIDs(ctx); ok {
		return t, s
	}
	draw(t[:])
	draw(s[:])
	return t, s
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(context.Context, trace.TraceID) (s trace.SpanID) {
	draw(s[:])
	return s
}

// draw fills an id, which must not be zero.
func draw(id []byte) {
	_, _ = rand.Read(id) // never fails
	id[0] |= 1
}
