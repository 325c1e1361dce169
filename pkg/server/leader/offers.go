package leader

import (
	"context"
	"net/netip"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/agents"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/reconcile"
	"github.com/nstance/nstance/pkg/server/registration"
	"github.com/nstance/nstance/pkg/server/roster"
)

// This file is what a term offers to the services.

// Operators is what the term offers to operators.
func (t *Term) Operators() operators.Shard {
	return operators.Shard{
		Groups: t.groups, Instances: t.records, Health: t.health, Problems: t.problems,
		Provider: t.cfg.Boot.Server.Provider, Capacity: t.types.capacity, CreatesFailing: t.loop.CreatesFailing,
		OnDemand: t.onDemand, Registry: t.registry, Static: t.refresh, Watches: t.watches,
	}
}

func (t *Term) health(id fleet.InstanceID) operators.Health {
	h := t.loop.Health(id)
	if p := t.problems.ofInstance(id); p.Message != "" && h.LastError == "" {
		h.LastError, h.LastErrorAt = p.Message, p.At
	}
	return operators.Health{
		Connected: h.Connected, LastReportAt: h.LastReportAt, Unhealthy: h.Unhealthy, ProviderState: string(h.VM),
		ConfigHash: t.files.ConfigHash(id), LastError: h.LastError, LastErrorAt: h.LastErrorAt,
	}
}

// join counts an operator as one that has a stream open.
func (t *Term) join(ctx context.Context, caller pki.Caller) (cut <-chan struct{}, leave func(), err error) {
	if err := t.roster.Look(ctx, caller); err != nil { // another term may have let it in
		return nil, nil, err
	}
	return t.roster.Join(caller)
}

// Roster knows which operators are let in.
func (t *Term) Roster() *roster.Roster { return t.roster }

// Agents is what the term offers to agents.
func (t *Term) Agents() agents.Shard { return agentShard{t.loop, t} }

type agentShard struct {
	*reconcile.Loop
	term *Term
}

// Gone implements agents.Shard.
func (s agentShard) Gone(id fleet.InstanceID) bool {
	_, phase, ok := s.term.records.Standing(id)
	return ok && phase.Ending()
}

// IdentityShared implements agents.Shard.
func (s agentShard) IdentityShared(id fleet.InstanceID, message string) {
	key := s.group(id)
	s.term.problems.report(fleet.Problem{
		At: s.term.cfg.Now(), Reason: ReasonIdentityShared, Message: message, Group: key, Instance: id,
	})
	s.term.watches.Changed(key, id)
}

// IdentityNotShared implements agents.Shard.
func (s agentShard) IdentityNotShared(id fleet.InstanceID) {
	key := s.group(id)
	s.term.problems.solvedOf(key, id, ReasonIdentityShared)
	s.term.watches.Changed(key, id)
}

// group is that of an instance; zero: its record is not known.
func (s agentShard) group(id fleet.InstanceID) fleet.GroupKey {
	i, ok := s.term.records.Get(id)
	if !ok {
		return fleet.GroupKey{}
	}
	return i.GroupKey()
}

// Files implements agents.Shard.
func (s agentShard) Files() agents.Files { return s.term.files }

// Done implements agents.Shard.
func (s agentShard) Done() <-chan struct{} { return s.term.ctx.Done() }

// Addresses returns what the provider knows of an instance's addresses.
func (t *Term) Addresses(id fleet.InstanceID) []netip.Addr { return t.loop.Addresses(id) }

// Registration is what the term offers to registration.
func (t *Term) Registration() registration.Shard {
	return registrationShard{t.loop, t.registry, t.records, t.keys}
}

type registrationShard struct {
	*reconcile.Loop
	*registry
	records records
	keys    *publicKeys
}

// ClaimKey implements registration.Shard.
func (s registrationShard) ClaimKey(id fleet.InstanceID, fingerprint string) bool {
	return len(s.keys.claim(id, fingerprint)) == 0
}

// Instance implements registration.Shard. A cache that lags must not turn away an
// instance that exists, so what it does not know is asked of the store. Another
// tenant's is looked for there in vain, like one that does not exist.
func (s registrationShard) Instance(ctx context.Context, tenant string, id fleet.InstanceID) (fleet.Instance, error) {
	if i, ok := s.records.Get(id); ok && i.Tenant == tenant {
		return i, nil
	}
	i, err := s.records.Fetch(ctx, tenant, id)
	return i, kind(err)
}

// UpdateInstance implements registration.Shard.
func (s registrationShard) UpdateInstance(
	ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error,
) (fleet.Instance, error) {
	i, err := s.records.Update(ctx, id, change)
	return i, kind(err)
}

// Confirm implements registration.Shard.
func (s registrationShard) Confirm(ctx context.Context) error {
	return kind(s.cfg.Fence.Check(ctx))
}
