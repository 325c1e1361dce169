//go:build integration

package mainjob

import (
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/tracing"
	"github.com/nstance/nstance/pkg/tracing/otlp/otlptest"
)

// TestTraces: real servers and agents export to a collector. A killed machine's replacement is one
// trace of both, and an edit is a part of its caller's.
func TestTraces(t *testing.T) {
	collector := otlptest.Collect(t)
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": collector.GRPC, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_BSP_SCHEDULE_DELAY": "200",
	} {
		t.Setenv(name, value)
	}
	s := newStack(t, "process")
	s.bring()

	victim := s.running("dev-1")[0]
	s.kill("dev-1", victim)
	var replacement otlptest.Span
	s.eventually("the replacement's trace is complete", func() (bool, string) {
		for _, one := range collector.Named("start instance") {
			if one.Attributes["nstance.replaces"] == victim {
				replacement = one
			}
		}
		tree := collector.Tree(replacement.Trace)
		return strings.Count(tree, "agent report") == 1, tree
	})
	tree := collector.Tree(replacement.Trace)
	for _, part := range []string{
		"start instance", "\n  decide", "\n  create", "\n    store put instance", "\n    provider create", "\n  boot", "\n  agent register",
		"\n    register", "\n      store put instance", "\n  agent report", "\n  become ready",
	} {
		if !strings.Contains(tree, part) {
			t.Errorf("there is no %q in\n%s", part, tree)
		}
	}
	if id := replacement.Attributes[tracing.AttrInstance]; tracing.InstanceTrace(id) != replacement.Trace || strings.Contains(tree, "?") {
		t.Errorf("the trace of %s is %s:\n%s", id, replacement.Trace, tree)
	}
	for _, one := range collector.Of(replacement.Trace) {
		if program := one.Resource["service.name"]; strings.HasPrefix(one.Name, "agent ") != (program == "nstance-agent") {
			t.Errorf("%s is of %s", one.Name, program)
		}
	}

	const caller = "0123456789abcdef0123456789abcdef"
	s.env = append(s.env, "TRACEPARENT=00-"+caller+"-0123456789abcdef-01")
	s.scale("dev-1", 3)
	s.eventually("the edit is in its caller's trace", func() (bool, string) {
		tree := collector.Tree(caller)
		return strings.Contains(tree, "nstance.v1.OperatorService/UpsertGroup\n  store put groups"), tree
	})
}
