package rpc

import (
	"context"
	"net/netip"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// runHeader carries the run of an agent.
const runHeader = "nstance-run"

// runLength is how many characters a run has.
const runLength = 32

// WithRun returns a context whose calls name the run of their agent: an id that each
// process of one draws at random, by which two with the same certificate differ. Without
// a run it returns ctx.
func WithRun(ctx context.Context, run string) context.Context {
	if run == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, runHeader, run)
}

// RunFrom returns the run that the caller of ctx names; empty: it names none. The error
// of one that is malformed is of kind Invalid.
func RunFrom(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, runHeader)
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", Invalid.Errorf("header %s: %d values: want one", runHeader, len(values))
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

// SourceFrom returns the address and port that the call of ctx comes from; invalid when
// the transport has none.
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
