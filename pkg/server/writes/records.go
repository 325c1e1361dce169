package writes

import (
	"context"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// Records is the ledger of a term. Reads are not bound to the term; writes are, and those
// under way when it ends get writeGrace to finish.
type Records struct {
	*ledger.Ledger
	Writer *ledger.Writer
	Writes *Writes
}

// IsLiving reports whether an instance has a record whose phase is not Deleted.
func (r Records) IsLiving(id fleet.InstanceID) bool {
	_, phase, ok := r.PhaseOf(id)
	return ok && phase != fleet.Deleted
}

// Lives reports whether a group has instances that are not deleted.
func (r Records) Lives(key fleet.GroupKey) bool {
	return slices.ContainsFunc(r.Group(key), func(i fleet.Instance) bool { return i.Phase != fleet.Deleted })
}

var _ reconcile.Ledger = Records{}

// Create implements reconcile.Ledger.
func (r Records) Create(ctx context.Context, i fleet.Instance) (fleet.Instance, error) {
	return During(ctx, r.Writes, func(ctx context.Context) (fleet.Instance, error) { return r.Writer.Create(ctx, i) })
}

// Update implements reconcile.Ledger.
func (r Records) Update(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) (fleet.Instance, error) {
	return During(ctx, r.Writes, func(ctx context.Context) (fleet.Instance, error) { return r.Writer.Update(ctx, id, change) })
}

// Remove implements reconcile.Ledger.
func (r Records) Remove(ctx context.Context, id fleet.InstanceID) error {
	return r.Writes.Do(ctx, func(ctx context.Context) error { return r.Writer.Remove(ctx, id) })
}

// LogCertificates makes a batch durable. It needs no fence: a logged certificate that a
// former leader never delivered is harmless.
func (r Records) LogCertificates(ctx context.Context, b ledger.CertificateBatch) error {
	return r.Writes.Do(ctx, func(ctx context.Context) error { return r.Ledger.LogCertificates(ctx, b) })
}
