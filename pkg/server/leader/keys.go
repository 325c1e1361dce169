package leader

import (
	"context"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/writes"
)

// recordKeys makes the keys of an instance durable before it is given certificates for them: the
// next term knows them from its record. Keys that are recorded already cost nothing.
func recordKeys(ctx context.Context, r writes.Records, id fleet.InstanceID, fingerprints ...string) error {
	if i, ok := r.Get(id); ok {
		if i = i.Clone(); !i.AddKeys(fingerprints...) {
			return nil
		}
	}
	_, err := r.Update(ctx, id, func(i *fleet.Instance) error {
		i.AddKeys(fingerprints...)
		return nil
	})
	return writes.Kind(err)
}

// RenewalKey claims, durably, the key that an agent renews its certificate with for its
// instance. The error is of kind KeyInUse if another living instance has the key.
func (t *Term) RenewalKey(ctx context.Context, caller pki.Caller, fingerprint string) error {
	id := fleet.InstanceID(caller.ID)
	if len(t.keys.Claim(id, fingerprint)) > 0 {
		return rpc.KeyInUse
	}
	return recordKeys(ctx, t.records, id, fingerprint)
}
