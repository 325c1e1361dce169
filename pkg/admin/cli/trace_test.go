package cli_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/tracing"
)

// TestCallersTrace: a command, and a request of the HTTP API, pass their caller's span on to the shard.
func TestCallersTrace(t *testing.T) {
	c := newFixture(t).register()
	one, _ := c.twoShards()
	var mu sync.Mutex
	var sent []string
	one.fault = func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, strings.Join(metadata.ValueFromIncomingContext(ctx, tracing.Header), ","))
		return nil
	}
	taken := func() string {
		mu.Lock()
		defer mu.Unlock()
		last := "no call"
		if len(sent) > 0 {
			last = sent[len(sent)-1]
		}
		sent = nil
		return last
	}
	const span = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	s := c.serve()
	for given, want := range map[string]string{span: span, "": "", "00-0123": "", span + "\n": ""} {
		c.env["TRACEPARENT"] = given
		c.run("group", "list", "--shard", "one").want(t, cli.ExitOK)
		if got := taken(); got != want {
			t.Errorf("TRACEPARENT=%q: the shard was sent %q", given, got)
		}
		h := header("Authorization", "Bearer "+fullToken)
		h[http.CanonicalHeaderKey(tracing.Header)] = []string{strings.TrimSpace(given)}
		s.do(t, httpRequest{method: "GET", path: "/groups?shard=one", header: h}).want(t, 200)
		if got, want := taken(), map[bool]string{true: span}[strings.TrimSpace(given) == span]; got != want {
			t.Errorf("the request had %q: the shard was sent %q", given, got)
		}
	}
}
