package leader

import (
	"context"
	"net/netip"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/agents"
	"github.com/nstance/nstance/pkg/server/groups"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
	"github.com/nstance/nstance/pkg/server/roster"
)

// This file is the interface of a term to the services.

// Operators returns the term as the operator service sees it.
func (t *Term) Operators() operators.Shard {
	return operators.Shard{
		Admit: t.admission.call, Groups: t.groups, Rollouts: groups.Rollouts{Groups: t.groups}, Instances: t.records,
		Health: t.health, FilesUpToDate: t.files.UpToDate, Problems: t.shown,
		Provider: t.cfg.Boot.Server.Provider, Capacity: t.types.capacity, CreatesFailing: t.loop.CreatesFailing,
		Rotation: t.rotations.get, OnDemand: t.onDemand, Registry: t.registry, Static: t.refresh, Watches: t.watches, Transitions: t.transitions,
		Events: t.history, Edits: t.cfg.Edits, Outage: t.cfg.Outage,
	}
}

func (t *Term) health(id fleet.InstanceID) operators.Health {
	h := t.loop.Health(id)
	if p := t.shown.ofInstance(t.groupOf(id), id); h.LastError == "" {
		h.LastError, h.LastErrorAt = p.Message, p.At
	}
	if h.LastError == "" {
		h.LastError, h.LastErrorAt = t.files.Trouble(id)
	}
	return operators.Health{
		Connected: h.Connected, LastReportAt: h.LastReportAt, WithoutFiles: h.WithoutFiles, Unhealthy: h.Unhealthy,
		ProviderState: string(h.VM), Dead: h.Dead,
		CertificateExpires: t.cfg.CertificateExpires(id),
		ConfigHash:         t.files.ConfigHash(id), LastError: h.LastError, LastErrorAt: h.LastErrorAt,
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
	s.wrote(id, r.WriteError)
	s.Loop.AgentReport(id, r)
}

// wrote reports an instance whose agent can't write to its disk, until it can. Either is told no
// sooner than a minute after the report before.
func (s agentShard) wrote(id fleet.InstanceID, failed string) {
	t := s.term
	i, ok := t.records.Get(id)
	known, told := t.problems.Get(problems.Subject{Group: i.GroupKey(), Instance: id, Reason: ReasonDisk})
	switch {
	case !ok || i.Phase.Ending() || told == (failed != ""):
	case !told:
		t.report(id, ReasonDisk, "the agent can't write to its disk: "+failed)
	case t.cfg.Now().Sub(known.At) >= toldFor:
		t.solved(id, ReasonDisk)
	}
}

// Files implements agents.Shard.
func (s agentShard) Files() agents.Files { return s.term.files }

// Done implements agents.Shard.
func (s agentShard) Done() <-chan struct{} { return s.term.ctx.Done() }

// Addresses returns an instance's addresses according to the provider.
func (t *Term) Addresses(id fleet.InstanceID) []netip.Addr { return t.loop.Addresses(id) }
