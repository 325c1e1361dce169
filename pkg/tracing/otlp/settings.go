package otlp

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/nstance/nstance/pkg/env"
)

// The variables that are checked, or are not left to the SDK.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	envHeaders        = "OTEL_EXPORTER_OTLP_HEADERS"
	envTracesHeaders  = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
	envSampler        = "OTEL_TRACES_SAMPLER"
	envSamplerArg     = "OTEL_TRACES_SAMPLER_ARG"
	envDelay          = "OTEL_BSP_SCHEDULE_DELAY"
	envTimeout        = "OTEL_BSP_EXPORT_TIMEOUT"
	envQueue          = "OTEL_BSP_MAX_QUEUE_SIZE"
	envBatch          = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"
)

const (
	protocolGRPC = "grpc"
	protocolHTTP = "http/protobuf"
)

// settings are what the variables say.
type settings struct {
	on       bool
	protocol string
	begin    sdktrace.Sampler // of a trace that begins here
	sampler  sdktrace.Sampler // of each span
	batches  []sdktrace.BatchSpanProcessorOption
}

// read reads the variables. The error has a line for each one that is not valid. If no endpoint is
// set, or exporting is switched off, the others don't matter.
func read(getenv func(string) string) (settings, error) {
	r := &env.Reader{Getenv: getenv}
	if !enabled(r) {
		return settings{}, r.Err()
	}
	s := settings{on: true, protocol: protocol(r), batches: batches(r)}
	for _, name := range []string{envEndpoint, envTracesEndpoint} {
		checkEndpoint(r, name)
	}
	for _, name := range []string{envHeaders, envTracesHeaders} {
		checkHeaders(r, name)
	}
	s.begin, s.sampler = samplers(r)
	return s, r.Err()
}

// enabled reports whether spans are exported.
func enabled(r *env.Reader) bool {
	exporter := r.Get(envExporter)
	if exporter == "none" || strings.EqualFold(r.Get(envDisabled), "true") {
		return false
	}
	_, endpoint := r.First(envTracesEndpoint, envEndpoint)
	switch {
	case endpoint == "":
		return false
	case exporter != "" && exporter != "otlp":
		r.Reject(envExporter, exporter, "otlp or none")
	}
	return true
}

func checkEndpoint(r *env.Reader, name string) {
	value := r.Get(name)
	if u, err := url.Parse(value); value != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		r.Reject(name, value, "a URL such as http://localhost:4318 or https://collector.example.com:4317")
	}
}

// checkHeaders checks a list of headers, which may be secrets: the error does not have the value.
func checkHeaders(r *env.Reader, name string) {
	for pair := range strings.SplitSeq(r.Get(name), ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		_, err := url.PathUnescape(value)
		if key = strings.TrimSpace(key); key == "" && !ok {
			continue // a comma at the end
		}
		if !ok || err != nil || key == "" || strings.ContainsAny(key, " \t:\"") {
			r.Fail(fmt.Errorf("%s: its value, which is not shown, is not valid: want name=value, several of them separated by commas, "+
				"with other characters percent-encoded, as in Authorization=Bearer%%20TOKEN", name))
			return
		}
	}
}

func protocol(r *env.Reader) string {
	value, name := r.First(envTracesProtocol, envProtocol)
	switch value = cmp.Or(value, protocolHTTP); value {
	case protocolGRPC, protocolHTTP:
	default:
		r.Reject(name, value, protocolGRPC+" or "+protocolHTTP)
	}
	return value
}

// samplers returns the sampler of traces that begin here, and that of all spans.
func samplers(r *env.Reader) (begin, all sdktrace.Sampler) {
	name := cmp.Or(strings.ToLower(r.Get(envSampler)), "parentbased_always_on")
	kind, ofParent := strings.CutPrefix(name, "parentbased_")
	switch kind {
	case "always_on":
		begin = sdktrace.AlwaysSample()
	case "always_off":
		begin = sdktrace.NeverSample()
	case "traceidratio":
		begin = sdktrace.TraceIDRatioBased(ratio(r))
	default:
		r.Reject(envSampler, name, "always_on, always_off or traceidratio, or one of these after parentbased_")
		begin = sdktrace.NeverSample()
	}
	if ofParent {
		return begin, sdktrace.ParentBased(begin)
	}
	return begin, begin
}

func ratio(r *env.Reader) float64 {
	value := cmp.Or(r.Get(envSamplerArg), "1")
	part, err := strconv.ParseFloat(value, 64)
	if err != nil || !(part >= 0 && part <= 1) { // not a number is neither
		r.Fail(fmt.Errorf("%s: %.80q is not valid: want a part from 0 to 1 such as 0.1", envSamplerArg, value))
		return 0
	}
	return part
}

// batches returns how spans are queued. The SDK reads these variables too, but takes values with
// which it fails, or never rests.
func batches(r *env.Reader) []sdktrace.BatchSpanProcessorOption {
	const hour = int(time.Hour / time.Millisecond)
	queue := number(r, envQueue, sdktrace.DefaultMaxQueueSize, 1_000_000)
	return []sdktrace.BatchSpanProcessorOption{
		sdktrace.WithBatchTimeout(time.Duration(number(r, envDelay, sdktrace.DefaultScheduleDelay, hour)) * time.Millisecond),
		sdktrace.WithExportTimeout(time.Duration(number(r, envTimeout, sdktrace.DefaultExportTimeout, hour)) * time.Millisecond),
		sdktrace.WithMaxQueueSize(queue),
		sdktrace.WithMaxExportBatchSize(min(queue, number(r, envBatch, sdktrace.DefaultMaxExportBatchSize, 1_000_000))),
	}
}

// number returns a whole number from 1 to most.
func number(r *env.Reader, name string, otherwise, most int) int {
	value := r.Get(name)
	if value == "" {
		return otherwise
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > most {
		r.Reject(name, value, fmt.Sprintf("a whole number from 1 to %d", most))
		return otherwise
	}
	return n
}
