package rpc

import (
	"context"
	"net/netip"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// runHeader carries an agent's run ID.
const runHeader = "nstance-run"

// runLength is the length of a run ID.
const runLength = 32

// WithRun returns a context whose calls carry their agent's run ID: random per process, it
// tells apart two processes with the same certificate. With an empty run it returns ctx.
func WithRun(ctx context.Context, run string) context.Context {
	if run == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, runHeader, run)
}

// RunFrom returns the run ID sent by the caller of ctx, or an empty string. The error of a
// malformed one is of kind Invalid.
func RunFrom(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, runHeader)
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", Invalid.Errorf("header %s: %d values, want one", runHeader, len(values))
	}
	if run := values[0]; isRun(run) {
		return run, nil
	}
	return "", Invalid.Errorf("header %s: %.80q is not valid: want %d digits of 0-9a-f", runHeader, values[0], runLength)
}

func isRun(text string) bool {
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(text) == runLength
}

// SourceFrom returns the address and port of the caller of ctx, or the zero value if the
// transport has none.
func SourceFrom(ctx context.Context) netip.AddrPort {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return netip.AddrPort{}
	}
	source, err := netip.ParseAddrPort(p.Addr.String())
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(source.Addr().Unmap().WithZone(""), source.Port())
}
