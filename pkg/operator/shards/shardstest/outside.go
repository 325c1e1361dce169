package shardstest

import (
	"context"
	"net"

	"github.com/nstance/nstance/pkg/pki"
)

// For tests with their own client.

// CA returns the CA of all certificates.
func (w *World) CA() *pki.CA { return w.ca }

// Dial connects to a shard's server by its address.
func (w *World) Dial(ctx context.Context, addr string) (net.Conn, error) { return w.dial(ctx, addr) }

// Addr returns the address of a shard's server, which must be up.
func (w *World) Addr(id string) string {
	w.tb.Helper()
	return w.Shard(id).addr()
}
