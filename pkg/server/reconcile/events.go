package reconcile

import (
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/census"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/pacing"
	"github.com/nstance/nstance/pkg/server/plan"
)

// This file tells what the loop does as events: the text of each is made once the step is durable,
// by its worker, so that no decision waits for it.

// The rules of what plan.Next does not decide.
const (
	ruleSweep  = "rule:sweep"
	rulePacing = "rule:pacing"
	ruleCensus = "rule:absence"
)

// why returns the basis of an action. The group's members are counted once per decision, and only
// if they matter.
func (h *handout) why(a plan.Action) plan.Why {
	if h.members == nil && (a.Kind == plan.Create || a.Reason == plan.ReasonScaleDown) {
		m := h.view.Members()
		h.members = &m
	}
	if h.members == nil {
		return h.view.Why(a, plan.Members{})
	}
	return h.view.Why(a, *h.members)
}

// explainCreates sets the basis of the creates, of which the first replace the lost instances. Many
// creates may wait for long, so the others share one for each reason.
func (h *handout) explainCreates(lost []*plan.Instance) {
	byReason := map[string]*plan.Why{}
	for n, x := range h.creates {
		if n < len(lost) {
			w := h.view.Lost(lost[n])
			x.why = &w
			continue
		}
		if byReason[x.reason] == nil {
			w := h.why(plan.Action{Kind: plan.Create, Reason: x.reason})
			byReason[x.reason] = &w
		}
		x.why = byReason[x.reason]
	}
}

// basis returns a function that says why an action on an instance was decided, with what the
// provider said of the end of its machine.
func (h *handout) basis(a plan.Action) func() string {
	w, observed := h.why(a), h.loop.observed
	return func() string { return w.String() + ended(observed.Get(a.ID), a.Reason) }
}

// ended returns what is known of the end of a machine if that is the reason.
func ended(known observe.Snapshot, reason string) string {
	text := ""
	if reason == plan.ReasonVMGone {
		text = known.Evidence()
	}
	if said := known.Explain(reason); said != reason {
		text += said[len(reason):]
	}
	return text
}

// moved records that an instance moved to a phase.
func (r *reporter) moved(i fleet.Instance, reason, message string) {
	kinds := map[fleet.Phase]fleet.EventKind{
		fleet.Draining: fleet.EventDrain, fleet.Deleting: fleet.EventDelete, fleet.Deleted: fleet.EventDeleted,
	}
	r.record(fleet.Event{
		Kind: kinds[i.Phase], Tenant: i.Tenant, Group: i.Group, Instance: i.ID,
		Actor: plan.RuleOf(reason), Reason: reason, Message: message,
	})
}

// tellCreate records that an instance is being created.
func (l *launcher) tellCreate(x *launch) {
	e := fleet.Event{
		Kind: fleet.EventCreate, Tenant: x.record.Tenant, Group: x.record.Group, Instance: x.record.ID, Replaces: x.replaces,
		Reason: plan.ReasonScaleUp,
	}
	if x.why != nil {
		e.Reason, e.Message = x.why.Action.Reason, x.why.String()
	}
	if x.replaces != "" {
		e.Kind = fleet.EventReplace
		e.Message += ended(l.observed.Get(x.replaces), e.Reason)
	}
	e.Actor = plan.RuleOf(e.Reason)
	l.reports.record(e)
}

// tellCreates records that the creates of a group begin to fail, fail for another reason, or no
// longer fail.
func (r *reporter) tellCreates(n pacing.News) {
	e := fleet.Event{Tenant: n.Group.Tenant, Group: n.Group.Name, Actor: rulePacing}
	if p := n.Problem; p != nil {
		e.Kind, e.Instance, e.Reason, e.Message = fleet.EventFailing, p.Instance, p.Reason, p.Message
		r.record(e)
	}
	if n.Ended {
		e.Kind, e.Instance, e.Reason, e.Message = fleet.EventRecovered, "", "creates-recovered", "the group's creates no longer fail"
		r.record(e)
	}
}

// tellAbortOver records that a group no longer refuses what an aborted rollout would have made of it.
func (r *reporter) tellAbortOver(g fleet.Group, refused string) {
	r.record(fleet.Event{
		Kind: fleet.EventAbortOver, Tenant: g.Key.Tenant, Group: g.Key.Name, Actor: plan.RuleOf(plan.ReasonDrift), Reason: "all-up-to-date",
		Message: fmt.Sprintf("all instances of group %s have definition %s, so the rollout of %s is no longer refused: it begins if "+
			"that is asked for again", g.Key.Name, g.Hashes.Infra, refused),
	})
}

// tellOrphan records that a VM without a record was deleted.
func (r *reporter) tellOrphan(vm provider.VM) {
	key := census.Group(vm)
	r.record(fleet.Event{
		Kind: fleet.EventOrphan, Tenant: key.Tenant, Group: key.Name, Instance: vm.ID, Actor: ruleSweep, Reason: "no-record",
		Message: fmt.Sprintf("machine %s is tagged as this shard's, but no record names it, and its group does not need it", vm.ProviderID),
	})
}

// tellHeld records that the loop holds or, with an empty text, that it acts again.
func (r *reporter) tellHeld(rule, reason, why string) {
	e := fleet.Event{Kind: fleet.EventHeld, Actor: rule, Reason: reason, Message: why}
	if why == "" {
		e.Kind, e.Message = fleet.EventResumed, "what held the shard is over: it creates and deletes again"
	}
	r.record(e)
}

// tellTakeover records the start of the term's decisions.
func (l *Loop) tellTakeover(records, vms int) {
	l.reports.record(fleet.Event{
		Kind: fleet.EventTakeover, Actor: "rule:election", Reason: "takeover",
		Message: fmt.Sprintf("a leader took over in epoch %d: it knows %d records and %d machines", l.cfg.Fence.Epoch(), records, vms),
	})
}
