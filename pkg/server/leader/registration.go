package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/identities"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/registration"
	"github.com/nstance/nstance/pkg/server/registry"
	"github.com/nstance/nstance/pkg/server/writes"
)

// Registration returns the term as the registration service sees it.
func (t *Term) Registration() registration.Shard {
	return registrationShard{t.registry, t.known, t}
}

type registrationShard struct {
	*registry.Registry
	*identities.Identities
	term *Term
}

var _ registration.Shard = registrationShard{}

// Machine implements registration.Shard.
func (s registrationShard) Machine(id fleet.InstanceID) registration.Machine {
	return registration.Machine(s.term.loop.Machine(id))
}

// DescribeMachine implements registration.Shard.
func (s registrationShard) DescribeMachine(ctx context.Context, i fleet.Instance) (registration.Machine, error) {
	m, err := s.term.loop.DescribeMachine(ctx, i)
	return registration.Machine(m), err
}

// RegistrationRefused implements registration.Shard. The reason is the instance's last error; it is a
// problem too, unless the agent goes on by itself. An instance that has registered is left alone,
// whatever else uses its nonce.
func (s registrationShard) RegistrationRefused(tenant string, id fleet.InstanceID, why error) {
	i, ok := s.term.records.Get(id)
	if !ok || i.Tenant != tenant || i.Phase != fleet.Pending {
		return
	}
	text, final := refusal(why)
	if s.term.loop.RegistrationRefused(id, text) {
		s.term.watches.Changed(i.GroupKey(), id)
	}
	if !final {
		return
	}
	known, told := s.term.problems.Get(problems.Subject{Group: i.GroupKey(), Instance: id, Reason: ReasonRegistrationRefused})
	if told && s.term.cfg.Now().Sub(known.At) < toldFor {
		return
	}
	s.term.report(id, ReasonRegistrationRefused, text)
	if i, ok := s.term.records.Get(id); !ok || i.Phase != fleet.Pending { // it registered meanwhile
		s.term.solved(id, ReasonRegistrationRefused)
	}
}

// refusal returns an error of a registration as it is shown, and whether the agent needs help.
func refusal(why error) (text string, final bool) {
	switch {
	case errors.Is(why, rpc.Denied) || errors.Is(why, rpc.Invalid):
		return "the registration of its agent was refused: " + problems.Text(why), true
	case errors.Is(why, rpc.KeyInUse): // the agent makes another key
		return "the registration of its agent was refused: " + problems.Text(why), false
	case errors.Is(why, rpc.Unavailable) || errors.Is(why, rpc.Conflict):
		return "the registration of its agent was put off: " + problems.Text(why), false
	default:
		return "the registration of its agent failed on the server, whose log says why", false
	}
}

// toldFor is how long a problem that an agent causes is not reported again.
const toldFor = time.Minute

// Registered implements registration.Shard.
func (s registrationShard) Registered(id fleet.InstanceID) {
	s.term.solved(id, ReasonRegistrationRefused)
	s.term.loop.Registered(id)
}

// ClaimKey implements registration.Shard.
func (s registrationShard) ClaimKey(id fleet.InstanceID, fingerprint string) bool {
	return len(s.term.keys.Claim(id, fingerprint)) == 0
}

// Instance implements registration.Shard. A listing may have missed the record of an instance that
// exists, so one that is not in memory is read by its key and adopted: its registration is an
// update of the record. Another tenant's instance is not found.
func (s registrationShard) Instance(ctx context.Context, tenant string, id fleet.InstanceID) (fleet.Instance, error) {
	_, known := s.term.records.Get(id)
	i, ok, err := s.term.records.Find(ctx, tenant, id)
	switch {
	case err != nil:
		return fleet.Instance{}, writes.Kind(err)
	case !ok || i.Tenant != tenant:
		return fleet.Instance{}, writes.Kind(fmt.Errorf("instance %s: %w", id, ledger.ErrNotFound))
	case !known:
		s.term.touched(i.GroupKey(), id)
	}
	return i, nil
}

// UpdateInstance implements registration.Shard.
func (s registrationShard) UpdateInstance(
	ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error,
) (fleet.Instance, error) {
	i, err := s.term.records.Update(ctx, id, change)
	return i, writes.Kind(err)
}

// Confirm implements registration.Shard.
func (s registrationShard) Confirm(ctx context.Context) error {
	return writes.Kind(s.term.cfg.Fence.Check(ctx))
}
