package otlptest

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Collector is a collector of spans, with OTLP over HTTP and over gRPC, on loopback.
type Collector struct {
	Spans

	HTTP, GRPC string // its URLs

	collectorv1.UnimplementedTraceServiceServer
}

// Collect starts a collector, which ends with the test.
func Collect(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{}
	overHTTP := httptest.NewServer(http.HandlerFunc(c.receive))
	t.Cleanup(overHTTP.Close)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	overGRPC := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(overGRPC, c)
	served := make(chan error, 1)
	go func() { served <- overGRPC.Serve(listener) }()
	t.Cleanup(func() {
		overGRPC.Stop()
		if err := <-served; err != nil {
			t.Errorf("the collector: %v", err)
		}
	})
	c.HTTP, c.GRPC = overHTTP.URL, "http://"+listener.Addr().String()
	return c
}

// receive implements OTLP over HTTP.
func (c *Collector) receive(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var sent collectorv1.ExportTraceServiceRequest
	if err != nil || req.URL.Path != "/v1/traces" || proto.Unmarshal(body, &sent) != nil {
		http.Error(w, "want an export to /v1/traces", http.StatusBadRequest)
		return
	}
	c.take(&sent)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// Export implements OTLP over gRPC.
func (c *Collector) Export(
	_ context.Context, sent *collectorv1.ExportTraceServiceRequest,
) (*collectorv1.ExportTraceServiceResponse, error) {
	c.take(sent)
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func (c *Collector) take(sent *collectorv1.ExportTraceServiceRequest) {
	for _, process := range sent.GetResourceSpans() {
		resource := texts(process.GetResource().GetAttributes())
		for _, scope := range process.GetScopeSpans() {
			for _, one := range scope.GetSpans() {
				c.add(span(one, resource))
			}
		}
	}
}

func span(one *tracev1.Span, resource map[string]string) Span {
	kinds := map[tracev1.Span_SpanKind]string{
		tracev1.Span_SPAN_KIND_INTERNAL: "internal", tracev1.Span_SPAN_KIND_CLIENT: "client", tracev1.Span_SPAN_KIND_SERVER: "server",
	}
	return Span{
		Name: one.GetName(), Trace: hex.EncodeToString(one.GetTraceId()), ID: hex.EncodeToString(one.GetSpanId()),
		Parent: hex.EncodeToString(one.GetParentSpanId()), Kind: kinds[one.GetKind()],
		From: at(one.GetStartTimeUnixNano()), To: at(one.GetEndTimeUnixNano()), Err: one.GetStatus().GetMessage(),
		Attributes: texts(one.GetAttributes()), Resource: resource,
	}
}

func at(nanoseconds uint64) time.Time { return time.Unix(0, int64(nanoseconds)) } //nolint:gosec // of this century

func texts(attributes []*commonv1.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range attributes {
		all[a.GetKey()] = a.GetValue().GetStringValue()
	}
	return all
}
