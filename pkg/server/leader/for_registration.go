package leader

import (
	"context"
	"net/netip"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/registration"
)

// registrationShard is what a term offers to registration.
type registrationShard struct{ *Term }

var _ registration.Shard = registrationShard{}

// Registration is what the term offers to package registration.
func (t *Term) Registration() registration.Shard { return registrationShard{t} }

// Instance returns a record. A cache that lags must not turn away an instance
// that exists, so what it does not know is asked of the store. Another tenant's is
// looked for there in vain, like one that does not exist.
func (s registrationShard) Instance(ctx context.Context, tenant string, id fleet.InstanceID) (fleet.Instance, error) {
	if i, ok := s.ledger.Get(id); ok && i.Tenant == tenant {
		return i, nil
	}
	i, err := s.ledger.Fetch(ctx, tenant, id)
	return i, kind(err)
}

func (s registrationShard) UpdateInstance(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) (updated fleet.Instance, err error) {
	err = s.writes.do(ctx, func(ctx context.Context) error {
		updated, err = s.writer.Update(ctx, id, change)
		return err
	})
	return updated, kind(err)
}

func (s registrationShard) Confirm(ctx context.Context) error { return kind(s.fence.Check(ctx)) }

func (s registrationShard) Registered(id fleet.InstanceID) { s.loop.Registered(id) }

func (s registrationShard) Addresses(id fleet.InstanceID) []netip.Addr { return s.loop.Addresses(id) }
