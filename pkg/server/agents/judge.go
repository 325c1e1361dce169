package agents

import (
	"context"
	"errors"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// Judge implements rpc.Judge: it refuses callers whose instance is shutting down or gone.
// Because a lagging cache must not refuse an existing instance, a cache miss is looked up in
// the store. It remembers when callers without a record called, since their machines work.
type Judge struct {
	ledger *ledger.Ledger
	absent *negativeCache
	calls  *calls
}

// NewJudge returns a judge that uses the records of a ledger.
func NewJudge(l *ledger.Ledger, now func() time.Time) *Judge {
	return &Judge{ledger: l, absent: newNegativeCache(now), calls: newCalls(now)}
}

// Called returns when the agent of an instance without a record last called; zero: never.
func (j *Judge) Called(id fleet.InstanceID) time.Time { return j.calls.last(id) }

var _ rpc.Judge = (*Judge)(nil)

// Known implements rpc.Judge.
func (j *Judge) Known(caller pki.Caller) (verdict error, ok bool) {
	id, err := fleet.ParseID(caller.ID)
	if err != nil {
		return rpc.CertificateRevoked.Errorf("the certificate names no instance: %w", err), true
	}
	if tenant, phase, ok := j.ledger.PhaseOf(id); ok {
		return verdictOn(id, tenant, phase, caller), true
	}
	if j.absent.has(recordKey{caller.Tenant, id}) {
		j.calls.add(id)
		return rpc.CertificateRevoked.Errorf("there is no instance %s", id), true
	}
	return nil, false
}

// Verify implements rpc.Judge. Concurrent lookups of one instance share one request.
func (j *Judge) Verify(ctx context.Context, caller pki.Caller) error {
	id := fleet.InstanceID(caller.ID)
	i, err := j.absent.fetch(ctx, caller.Tenant, id, j.ledger.Fetch)
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		j.calls.add(id)
		return rpc.CertificateRevoked.Errorf("there is no instance %s", id)
	case err != nil:
		return rpc.Unavailable.Errorf("look up instance %s: %w", id, err)
	default:
		return verdictOn(id, i.Tenant, i.Phase, caller)
	}
}

// verdictOn judges a caller by the record of its instance.
func verdictOn(id fleet.InstanceID, tenant string, phase fleet.Phase, caller pki.Caller) error {
	switch {
	case tenant != caller.Tenant:
		return rpc.CertificateRevoked.Errorf("there is no instance %s", id)
	case phase.Ending():
		return rpc.CertificateRevoked.Errorf("instance %s is %s", id, phase)
	default:
		return nil
	}
}
