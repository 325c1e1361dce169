package leader

import (
	"context"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// records is the ledger of a term: read by anyone, written by this term, with a
// moment for writes under way when the term ends.
type records struct {
	*ledger.Ledger
	writer *ledger.Writer
	writes *writes
}

// isLiving reports whether an instance has a record, and is not deleted by what that says.
func (r records) isLiving(id fleet.InstanceID) bool {
	_, phase, ok := r.Standing(id)
	return ok && phase != fleet.Deleted
}

var _ reconcile.Ledger = records{}

// Create implements reconcile.Ledger.
func (r records) Create(ctx context.Context, i fleet.Instance) (fleet.Instance, error) {
	return during(ctx, r.writes, func(ctx context.Context) (fleet.Instance, error) { return r.writer.Create(ctx, i) })
}

// Update implements reconcile.Ledger.
func (r records) Update(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) (fleet.Instance, error) {
	return during(ctx, r.writes, func(ctx context.Context) (fleet.Instance, error) { return r.writer.Update(ctx, id, change) })
}

// Remove implements reconcile.Ledger.
func (r records) Remove(ctx context.Context, id fleet.InstanceID) error {
	return r.writes.do(ctx, func(ctx context.Context) error { return r.writer.Remove(ctx, id) })
}

// LogCertificates makes a batch durable. It needs no fence: a certificate that a
// former leader logged and never delivered does nobody any harm.
func (r records) LogCertificates(ctx context.Context, b ledger.CertificateBatch) error {
	return r.writes.do(ctx, func(ctx context.Context) error { return r.Ledger.LogCertificates(ctx, b) })
}
