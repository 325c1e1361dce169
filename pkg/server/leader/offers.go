package leader

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/agents"
	"github.com/nstance/nstance/pkg/server/identities"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/reconcile"
	"github.com/nstance/nstance/pkg/server/registration"
	"github.com/nstance/nstance/pkg/server/registry"
	"github.com/nstance/nstance/pkg/server/roster"
	"github.com/nstance/nstance/pkg/server/writes"
)

// This file is the interface of a term to the services.

// Operators returns the term as the operator service sees it.
func (t *Term) Operators() operators.Shard {
	return operators.Shard{
		Admit: t.admission.call, Groups: t.groups, Instances: t.records, Health: t.health, Problems: t.shown,
		Provider: t.cfg.Boot.Server.Provider, Capacity: t.types.capacity, CreatesFailing: t.loop.CreatesFailing,
		OnDemand: t.onDemand, Registry: t.registry, Static: t.refresh, Watches: t.watches, Transitions: t.transitions,
		Events: t.history,
	}
}

func (t *Term) health(id fleet.InstanceID) operators.Health {
	h := t.loop.Health(id)
	if p := t.shown.ofInstance(t.groupOf(id), id); p.Message != "" && h.LastError == "" {
		h.LastError, h.LastErrorAt = p.Message, p.At
	}
	return operators.Health{
		Connected: h.Connected, LastReportAt: h.LastReportAt, Unhealthy: h.Unhealthy, ProviderState: string(h.VM),
		ConfigHash: t.files.ConfigHash(id), LastError: h.LastError, LastErrorAt: h.LastErrorAt,
	}
}

// join registers an operator that opens a stream.
func (t *Term) join(ctx context.Context, caller pki.Caller) (cut <-chan struct{}, leave func(), err error) {
	if err := t.roster.Verify(ctx, caller); err != nil { // another term may have registered it
		return nil, nil, err
	}
	return t.roster.Join(caller)
}

// Roster returns the admitted operators.
func (t *Term) Roster() *roster.Roster { return t.roster }

// Agents returns the term as the agent service sees it.
func (t *Term) Agents() agents.Shard { return agentShard{t.loop, t} }

type agentShard struct {
	*reconcile.Loop
	term *Term
}

// Gone implements agents.Shard.
func (s agentShard) Gone(id fleet.InstanceID) bool {
	_, phase, ok := s.term.records.PhaseOf(id)
	return ok && phase.Ending()
}

// IdentityShared implements agents.Shard.
func (s agentShard) IdentityShared(id fleet.InstanceID, message string) {
	s.term.report(id, ReasonIdentityShared, message)
}

// IdentityNotShared implements agents.Shard.
func (s agentShard) IdentityNotShared(id fleet.InstanceID) { s.term.solved(id, ReasonIdentityShared) }

// report reports a problem that an instance has until solved is called.
func (t *Term) report(id fleet.InstanceID, reason, message string) {
	key := t.groupOf(id)
	t.problems.Set(fleet.Problem{At: t.cfg.Now(), Reason: reason, Message: message, Group: key, Instance: id, Lasts: true})
	t.watches.Changed(key, id)
}

// solved ends an instance's problem of a reason.
func (t *Term) solved(id fleet.InstanceID, reason string) {
	key := t.groupOf(id)
	t.problems.Clear(key, id, reason)
	t.watches.Changed(key, id)
}

// groupOf returns the group of an instance; zero if its record is not known.
func (t *Term) groupOf(id fleet.InstanceID) fleet.GroupKey {
	i, ok := t.records.Get(id)
	if !ok {
		return fleet.GroupKey{}
	}
	return i.GroupKey()
}

// AgentReport implements agents.Shard.
func (s agentShard) AgentReport(id fleet.InstanceID, r fleet.Report) {
	s.term.clocks.heard(id, r.ClockAhead)
	s.Loop.AgentReport(id, r)
}

// Files implements agents.Shard.
func (s agentShard) Files() agents.Files { return s.term.files }

// Done implements agents.Shard.
func (s agentShard) Done() <-chan struct{} { return s.term.ctx.Done() }

// Addresses returns an instance's addresses according to the provider.
func (t *Term) Addresses(id fleet.InstanceID) []netip.Addr { return t.loop.Addresses(id) }

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

// ClaimsRefused implements registration.Shard. It reports an instance at most once a minute,
// even if its agent makes a different claim each time.
func (s registrationShard) ClaimsRefused(id fleet.InstanceID, message string) {
	now := s.term.cfg.Now()
	if last := s.term.shown.ofInstance(s.term.groupOf(id), id); last.Reason == ReasonClaimRefused && now.Sub(last.At) < claimsToldFor {
		return
	}
	s.term.report(id, ReasonClaimRefused, message)
}

// claimsToldFor is how long further refused claims of an instance are not reported.
const claimsToldFor = time.Minute

// Registered implements registration.Shard.
func (s registrationShard) Registered(id fleet.InstanceID) {
	s.term.solved(id, ReasonClaimRefused)
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
