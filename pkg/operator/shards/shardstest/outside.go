package shardstest

import (
	"context"
	"net"

	"github.com/nstance/nstance/pkg/pki"
)

// What a test needs that brings a client of its own.

// CA signs everybody's certificates.
func (w *World) CA() *pki.CA { return w.ca }

// Dial connects to a shard's server by its address.
func (w *World) Dial(ctx context.Context, addr string) (net.Conn, error) { return w.dial(ctx, addr) }

// Addr is where a shard's server is, when it is up.
func (w *World) Addr(id string) string {
	w.tb.Helper()
	return w.Shard(id).addr()
}
