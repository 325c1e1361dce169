package otlp_test

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/tracing"
	"github.com/nstance/nstance/pkg/tracing/otlp"
	"github.com/nstance/nstance/pkg/tracing/otlp/otlptest"
)

// journal is a log that is written to by the SDK's goroutines.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// open opens a tracer with an environment. The SDK reads that of the process.
func open(t *testing.T, env map[string]string) (tracer *tracing.Tracer, log *journal, closing func()) {
	t.Helper()
	for _, one := range os.Environ() {
		if name, _, _ := strings.Cut(one, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
	log = &journal{}
	tracer, closing, err := otlp.Open(t.Context(), otlp.Config{
		Service: "nstance-server", Version: "1.2.3", Attributes: map[string]string{tracing.AttrShard: "a"}, Getenv: os.Getenv, Now: time.Now,
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return tracer, log, closing
}

// eventually waits for what another goroutine does.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for began := time.Now(); !done(); time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("not within a minute")
		}
	}
}

// TestExport: a collector gets the spans, over HTTP and over gRPC, with what the environment adds.
func TestExport(t *testing.T) {
	for protocol, endpoint := range map[string]func(*otlptest.Collector) string{
		"":              func(c *otlptest.Collector) string { return c.HTTP },
		"http/protobuf": func(c *otlptest.Collector) string { return c.HTTP },
		"grpc":          func(c *otlptest.Collector) string { return c.GRPC },
	} {
		t.Run(protocol, func(t *testing.T) {
			collector := otlptest.Collect(t)
			tracer, log, closing := open(t, map[string]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint(collector), "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
				"OTEL_BSP_SCHEDULE_DELAY": "1", "OTEL_SERVICE_NAME": "mine", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
			})
			_, end := tracer.Start(t.Context(), tracing.Server, "edit", slog.String("group", "web"))
			end(nil)
			eventually(t, func() bool { return len(collector.Named("edit")) > 0 })
			closing()
			all := collector.Named("edit")
			if len(all) != 1 || all[0].Kind != "server" || all[0].Attributes["group"] != "web" {
				t.Fatalf("the collector has %+v; log: %s", all, log)
			}
			for name, want := range map[string]string{
				"service.name": "mine", "service.version": "1.2.3", "nstance.shard": "a", "deployment.environment.name": "test",
			} {
				if all[0].Resource[name] != want {
					t.Errorf("%s is %q, want %q", name, all[0].Resource[name], want)
				}
			}
			if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "exporting traces") {
				t.Errorf("the log has %s", text)
			}
		})
	}
}

// TestOff: without an endpoint, or if the environment says so, there are no traces.
func TestOff(t *testing.T) {
	for _, env := range []map[string]string{
		{},
		{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"},
		{"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"},
		{"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"},
		{"OTEL_TRACES_EXPORTER": "otlp"},
		// What other programs of the machine are told.
		{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_TRACES_SAMPLER": "jaeger_remote", "OTEL_TRACES_EXPORTER": "console"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_TRACES_EXPORTER": "none"},
	} {
		t.Run("", func(t *testing.T) {
			tracer, _, closing := open(t, env)
			defer closing()
			if tracer != nil {
				t.Errorf("%v: there is a tracer", env)
			}
		})
	}
}

// TestWithoutCollector: a collector that is not there costs one line a minute, and the program goes on.
func TestWithoutCollector(t *testing.T) {
	collector := otlptest.Collect(t)
	tracer, log, closing := open(t, map[string]string{
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": collector.HTTP + "/nothing", "OTEL_BSP_SCHEDULE_DELAY": "1", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1",
	})
	for range 20 {
		_, end := tracer.Start(t.Context(), tracing.Internal, "edit")
		end(nil)
	}
	eventually(t, func() bool { return strings.Contains(log.String(), "can't export traces") })
	closing()
	if text := log.String(); strings.Count(text, "can't export traces") != 1 || !strings.Contains(text, "400") {
		t.Errorf("the log has %s", text)
	}
}

// TestBadEnvironment: each variable that is not valid is named, with what would be.
func TestBadEnvironment(t *testing.T) {
	bad := map[string]string{
		"OTEL_TRACES_EXPORTER": "zipkin", "OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "ftp://x",
		"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_TRACES_SAMPLER": "some", "OTEL_BSP_SCHEDULE_DELAY": "0",
		"OTEL_BSP_EXPORT_TIMEOUT": "5s",
		"OTEL_BSP_MAX_QUEUE_SIZE": "-1", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1000001",
	}
	err := read(bad)
	for name, value := range bad {
		if err == nil || !strings.Contains(err.Error(), name+`: "`+value+`" is not valid: want `) {
			t.Errorf("%s is not named: %v", name, err)
		}
	}
	for _, part := range []string{"2", "-0.1", "NaN", "half"} {
		err := read(map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": part,
		})
		if err == nil || !strings.Contains(err.Error(), `OTEL_TRACES_SAMPLER_ARG: "`+part+`" is not valid`) {
			t.Errorf("%s: %v", part, err)
		}
	}
}

// TestSecretHeaders: headers that are not valid are refused, since the SDK would log them.
func TestSecretHeaders(t *testing.T) {
	for value, ok := range map[string]bool{
		"": true, "api-key=secret": true, "a=secret, b=more,": true, "Authorization=Bearer%20secret": true,
		"Authorization: Bearer secret": false, "secret": false, "a=secret%": false, "=secret": false, "a=b,secret": false,
	} {
		err := read(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": value})
		if (err == nil) != ok || err != nil && (strings.Contains(err.Error(), "secret") ||
			!strings.HasPrefix(err.Error(), "OTEL_EXPORTER_OTLP_TRACES_HEADERS: ")) {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func read(env map[string]string) error {
	_, err := otlp.Sampled(&otlptest.Recorder{}, time.Now, env)
	return err
}

// FuzzEnvironment: whatever the variables have, they are read or refused by name.
func FuzzEnvironment(f *testing.F) {
	f.Add("otlp", "http://localhost:4318", "grpc", "parentbased_traceidratio", "0.5")
	f.Add("", "", "", "", "")
	f.Add("x", "::", "http", "PARENTBASED_", "1e-400")
	f.Fuzz(func(t *testing.T, exporter, endpoint, protocol, sampler, part string) {
		env := map[string]string{
			"OTEL_EXPORTER_OTLP_HEADERS": part, "OTEL_BSP_SCHEDULE_DELAY": part,
			"OTEL_TRACES_EXPORTER": exporter, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
			"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": part,
		}
		err := read(env)
		if err == nil {
			return
		}
		for line := range strings.SplitSeq(err.Error(), "\n") {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(env)), func(name string) bool { return strings.HasPrefix(line, name+": ") }) {
				t.Errorf("no variable is named: %q", line)
			}
		}
	})
}
