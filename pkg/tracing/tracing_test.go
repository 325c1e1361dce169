package tracing_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"pgregory.net/rapid"

	_ "github.com/nstance/nstance/pkg/rapidseed"
	"github.com/nstance/nstance/pkg/tracing"
	"github.com/nstance/nstance/pkg/tracing/otlp"
	"github.com/nstance/nstance/pkg/tracing/otlp/otlptest"
)

// calledBy returns the context of a call as the server gets it whose caller sent what ctx sends.
func calledBy(ctx context.Context) context.Context {
	sent, _ := metadata.FromOutgoingContext(tracing.Outgoing(ctx))
	return metadata.NewIncomingContext(context.Background(), sent)
}

// TestInstance: two processes that know only an instance's id make one trace.
func TestInstance(t *testing.T) {
	const id = "knd00vhnczb3eegssvb76809epksg"
	var got otlptest.Recorder
	now := time.Now()
	clock := func() time.Time { return now }
	server, agent := otlp.Recorded(&got, clock), otlp.Recorded(&got, clock)

	ctx, end := agent.Start(agent.OfInstance(t.Context(), id), tracing.Client, "agent register")
	_, answered := server.Start(server.OfInstance(calledBy(ctx), id), tracing.Server, "register")
	now = now.Add(time.Second)
	answered(nil)
	end(nil)
	server.Instance(id, "start instance", now.Add(-time.Minute), now, errors.New("too late\xff"), slog.String("why", "x"), slog.Int("n", 2))

	if tree := got.Tree(tracing.InstanceTrace(id)); tree != "start instance\n  agent register\n    register" {
		t.Errorf("the trace is\n%s", tree)
	}
	first := got.Named("start instance")[0]
	if first.Parent != "" || first.Err != "too late" || !first.To.Equal(now) || !first.From.Equal(now.Add(-time.Minute)) ||
		first.Attributes["why"] != "x" || first.Attributes["n"] != "2" {
		t.Errorf("the first span is %+v", first)
	}
	if one := got.Named("register")[0]; one.Kind != "server" || !one.To.Equal(one.From.Add(time.Second)) {
		t.Errorf("register is %+v", one)
	}
}

// TestCallerOfAnotherTrace: what an agent sends can't put the server's spans into a trace that is not
// its instance's.
func TestCallerOfAnotherTrace(t *testing.T) {
	var got otlptest.Recorder
	tracer := otlp.Recorded(&got, time.Now)
	for _, sent := range []string{
		"00-0123456789abcdef0123456789abcdef-0123456789abcdef-01", "00-0123456789abcdef0123456789abcdef-0123456789abcdef", "", "\x00",
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(tracing.Header, sent))
		_, end := tracer.Start(tracer.OfInstance(ctx, "knd1"), tracing.Server, "register")
		end(nil)
	}
	if of := got.Of(tracing.InstanceTrace("knd1")); len(of) != 4 {
		t.Errorf("%d spans are in the instance's trace, want 4", len(of))
	}
}

// TestCall: a call is traced that changes something, or whose caller traces it.
func TestCall(t *testing.T) {
	var got otlptest.Recorder
	tracer := otlp.Recorded(&got, time.Now)
	_, end := tracer.Call(t.Context(), "/nstance.v1.OperatorService/ListGroups", false)
	end(nil)
	if all := got.Named("nstance.v1.OperatorService/ListGroups"); len(all) != 0 {
		t.Errorf("a read without a caller's span is traced: %v", all)
	}
	_, end = tracer.Call(t.Context(), "/nstance.v1.OperatorService/UpsertGroup", true)
	end(errors.New("no"))
	if all := got.Named("nstance.v1.OperatorService/UpsertGroup"); len(all) != 1 || all[0].Parent != "" || all[0].Err != "no" {
		t.Errorf("a change begins a trace: %v", all)
	}
	const trace, span = "0123456789abcdef0123456789abcdef", "0123456789abcdef"
	for sampled, want := range map[string]int{"01": 1, "00": 0} {
		ctx := calledBy(tracing.Remote(t.Context(), "00-"+trace+"-"+span+"-"+sampled))
		_, end := parentBased(t, &got).Call(ctx, "/nstance.v1.OperatorService/ListGroups", false)
		end(nil)
		all := got.Named("nstance.v1.OperatorService/ListGroups")
		if len(all) != want || want == 1 && (all[0].Trace != trace || all[0].Parent != span) {
			t.Errorf("sampled %s: %+v", sampled, all)
		}
		got.Forget()
	}
}

// parentBased returns a tracer that records what its caller records.
func parentBased(t *testing.T, to *otlptest.Recorder) *tracing.Tracer {
	t.Helper()
	tracer, err := otlp.Sampled(to, time.Now, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_TRACES_SAMPLER": "parentbased_always_off",
	})
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

// TestNil: a program without traces has a nil tracer.
func TestNil(t *testing.T) {
	var none *tracing.Tracer
	ctx, end := none.Start(none.OfInstance(t.Context(), "knd1"), tracing.Server, "register")
	end(errors.New("no"))
	called, end := none.Call(ctx, "/a/b", true)
	end(nil)
	none.Past(called, tracing.Client, "x", time.Time{}, time.Time{}, nil)
	none.Instance("knd1", "x", time.Time{}, time.Time{}, nil)
	if _, sent := metadata.FromOutgoingContext(tracing.Outgoing(called)); sent {
		t.Error("a header is sent")
	}
}

// TestAgentWithoutTraces: the trace is whole but for an agent that records none, or not this one.
func TestAgentWithoutTraces(t *testing.T) {
	var got otlptest.Recorder
	server := otlp.Recorded(&got, time.Now)
	off, err := otlp.Sampled(&got, time.Now, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_TRACES_SAMPLER": "always_off"})
	if err != nil {
		t.Fatal(err)
	}
	for id, agent := range map[string]*tracing.Tracer{"knd1": off, "knd2": nil} {
		ctx, end := agent.Start(agent.OfInstance(t.Context(), id), tracing.Client, "agent register")
		_, answered := server.Start(server.OfInstance(calledBy(ctx), id), tracing.Server, "register")
		answered(nil)
		end(nil)
		server.Instance(id, "start instance", time.Now(), time.Now(), nil)
		if tree := got.Tree(tracing.InstanceTrace(id)); tree != "start instance\n  register" {
			t.Errorf("the trace is\n%s", tree)
		}
	}
}

// TestClockSteps: a span does not end before it begins, and a step of the clock is not its length.
func TestClockSteps(t *testing.T) {
	var got otlptest.Recorder
	now := time.Now()
	tracer := otlp.Recorded(&got, func() time.Time { return now })
	ctx, end := tracer.Start(t.Context(), tracing.Internal, "started")
	tracer.Past(ctx, tracing.Internal, "past", now, now.Add(-time.Hour), nil)
	now = now.Add(-time.Minute)
	end(nil)
	tracer.Instance("knd1", "instance", now, now.Add(-time.Hour), nil)
	for _, name := range []string{"started", "past", "instance"} {
		if one := got.Named(name)[0]; !one.From.Equal(one.To) {
			t.Errorf("%s is from %s to %s", name, one.From, one.To)
		}
	}
}

// TestPartOfTheTraces: processes that record the same part of the traces record the same instances,
// whole, and others not at all.
func TestPartOfTheTraces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[a-z]{3}[0-9a-z]{26}`).Draw(t, "id")
		part := rapid.SampledFrom([]string{"0", "0.1", "0.5", "0.9", "1"}).Draw(t, "part")
		sampler := rapid.SampledFrom([]string{"traceidratio", "parentbased_traceidratio"}).Draw(t, "sampler")
		var got otlptest.Recorder
		open := func() *tracing.Tracer {
			tracer, err := otlp.Sampled(&got, time.Now, map[string]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": part,
			})
			if err != nil {
				t.Fatal(err)
			}
			return tracer
		}
		agent, server := open(), open()
		ctx, end := agent.Start(agent.OfInstance(context.Background(), id), tracing.Client, "agent register")
		_, answered := server.Start(server.OfInstance(calledBy(ctx), id), tracing.Server, "register")
		answered(nil)
		end(nil)
		server.Past(server.OfInstance(context.Background(), id), tracing.Internal, "boot", time.Now(), time.Now(), nil)
		server.Instance(id, "start instance", time.Now(), time.Now(), nil)
		n := len(got.Of(tracing.InstanceTrace(id)))
		if n != 0 && n != 4 || part == "0" && n != 0 || part == "1" && n != 4 {
			t.Fatalf("%d of 4 spans with %s", n, part)
		}
		if n == 4 && strings.Contains(got.Tree(tracing.InstanceTrace(id)), "?") {
			t.Fatalf("a parent is missing:\n%s", got.Tree(tracing.InstanceTrace(id)))
		}
	})
}
