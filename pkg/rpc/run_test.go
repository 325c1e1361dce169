package rpc_test

import (
	"context"
	"errors"
	"net"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/nstance/nstance/pkg/rpc"
)

const aRun = "0123456789abcdef0123456789abcdef"

// incoming returns the server-side context of a call with the client context ctx.
func incoming(ctx context.Context) context.Context {
	sent, _ := metadata.FromOutgoingContext(ctx)
	return metadata.NewIncomingContext(ctx, sent)
}

func TestRun(t *testing.T) {
	for _, want := range []string{"", aRun} {
		if run, err := rpc.RunFrom(incoming(rpc.WithRun(t.Context(), want))); run != want || err != nil {
			t.Errorf("sent %q, received %q, %v", want, run, err)
		}
	}
	for _, bad := range []string{"x", aRun + "0", strings.ToUpper(aRun), strings.Repeat("é", 16)} {
		_, err := rpc.RunFrom(incoming(rpc.WithRun(t.Context(), bad)))
		if !errors.Is(err, rpc.Invalid) || !strings.Contains(err.Error(), "nstance-run") || !strings.Contains(err.Error(), "want 32 digits") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := rpc.RunFrom(incoming(rpc.WithRun(rpc.WithRun(t.Context(), aRun), aRun))); !errors.Is(err, rpc.Invalid) {
		t.Errorf("two of them: %v", err)
	}
}

func FuzzRun(f *testing.F) {
	f.Add(aRun)
	f.Add("")
	f.Add("\x00")
	whole := regexp.MustCompile(`\A[0-9a-f]{32}\z`)
	f.Fuzz(func(t *testing.T, text string) {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.MD{"nstance-run": {text}})
		run, err := rpc.RunFrom(ctx)
		if whole.MatchString(text) != (err == nil) || err == nil && run != text || err != nil && run != "" {
			t.Errorf("%q is taken as %q, %v", text, run, err)
		}
	})
}

func TestSource(t *testing.T) {
	for from, want := range map[string]string{
		"10.0.0.7:1234": "10.0.0.7:1234", "[::ffff:10.0.0.7]:1234": "10.0.0.7:1234", "[fe80::1%eth0]:1": "[fe80::1]:1",
	} {
		addr, err := net.ResolveTCPAddr("tcp", from)
		if err != nil {
			t.Fatal(err)
		}
		if got := rpc.SourceFrom(peer.NewContext(t.Context(), &peer.Peer{Addr: addr})); got.String() != want {
			t.Errorf("%s is taken as %s", from, got)
		}
	}
	for name, ctx := range map[string]context.Context{
		"no peer": t.Context(), "a pipe": peer.NewContext(t.Context(), &peer.Peer{Addr: &net.UnixAddr{Name: "bufconn"}}),
	} {
		if got := rpc.SourceFrom(ctx); got.IsValid() {
			t.Errorf("%s: %s", name, got)
		}
	}
}
