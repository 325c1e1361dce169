package reconcile

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// handout is one decision while its actions are handed out to the parts.
type handout struct {
	loop    *Loop
	view    plan.View
	defined bool // the group is

	creates, resumes []*launch
	requested        map[fleet.InstanceID]*requested // changes to write with the actions of their instances

	members *plan.Members // of the view; nil: not counted
}

// action is one action of a plan. apply returns at once: what takes time is done by a worker.
type action interface {
	apply(ctx context.Context, h *handout)
}

type (
	create       plan.Action
	resume       plan.Action
	drain        plan.Action
	remove       plan.Action
	tombstone    plan.Action
	prune        plan.Action
	clearLeaving plan.Action
	forgetAbort  plan.Action
	forget       plan.Action
	wake         plan.Action
	unexpected   plan.Action
)

func actionOf(a plan.Action) action {
	switch a.Kind {
	case plan.Create:
		return create(a)
	case plan.Resume:
		return resume(a)
	case plan.Drain:
		return drain(a)
	case plan.Delete:
		return remove(a)
	case plan.Tombstone:
		return tombstone(a)
	case plan.Prune:
		return prune(a)
	case plan.ClearLeaving:
		return clearLeaving(a)
	case plan.ForgetAbort:
		return forgetAbort(a)
	case plan.Forget:
		return forget(a)
	case plan.Wake:
		return wake(a)
	default:
		return unexpected(a)
	}
}

func (a create) apply(_ context.Context, h *handout) {
	h.creates = append(h.creates, &launch{group: h.view.Group, decidedAt: h.view.Now, reason: a.Reason})
}

func (a resume) apply(_ context.Context, h *handout) {
	i := h.view.Find(a.ID)
	h.resumes = append(h.resumes, &launch{
		group: h.view.Group, decidedAt: h.view.Now, record: fleet.Instance{ID: a.ID}, onDemand: i.OnDemand, immediate: i.Immediate,
	})
}

func (a drain) apply(ctx context.Context, h *handout) {
	drain := func(i *fleet.Instance) { i.Drain = &fleet.Drain{Reason: a.Reason, DeleteAt: a.At.UTC()} }
	s := h.step(fleet.Draining, plan.Action(a))
	s.also = drain
	h.move(ctx, a.ID, s, func(ended func(error)) { ended(h.loop.records.move(ctx, a.ID, s)) })
}

func (a remove) apply(ctx context.Context, h *handout) {
	s := h.step(fleet.Deleting, plan.Action(a))
	h.move(ctx, a.ID, s, func(ended func(error)) { h.loop.remove(ctx, plan.Action(a), s, ended) })
}

func (a tombstone) apply(ctx context.Context, h *handout) {
	s := h.step(fleet.Deleted, plan.Action(a))
	h.move(ctx, a.ID, s, func(ended func(error)) {
		s.also = failureOf(plan.Action(a), h.loop.observed.Get(a.ID), h.view.Settings)
		ended(h.loop.records.move(ctx, a.ID, s))
	})
}

func (a prune) apply(ctx context.Context, h *handout) {
	h.work(ctx, a.ID, func() error { return h.loop.records.prune(ctx, a.ID) })
}

func (a clearLeaving) apply(ctx context.Context, h *handout) {
	h.work(ctx, "", func() error { return h.loop.cfg.Groups.ClearLeaving(ctx, h.view.Group.Key, a.IDs) })
}

func (a forgetAbort) apply(ctx context.Context, h *handout) {
	g := h.view.Group
	h.work(ctx, "", func() error {
		err := h.loop.cfg.Groups.ForgetAbort(ctx, g.Key, a.Refused)
		if err == nil {
			h.loop.log.Info("abort of a rollout is over", slog.String("group", g.Key.String()), slog.String("refused", a.Refused))
			h.loop.reports.tellAbortOver(g, a.Refused)
		}
		return err
	})
}

func (forget) apply(ctx context.Context, h *handout) {
	if h.defined {
		h.work(ctx, "", func() error { return h.loop.cfg.Groups.Forget(ctx, h.view.Group.Key) })
	}
}

func (a wake) apply(_ context.Context, h *handout) { h.loop.schedule.MarkAt(h.view.Group.Key, a.At) }

func (a unexpected) apply(ctx context.Context, h *handout) {
	h.work(ctx, a.ID, func() error { return fmt.Errorf("unexpected action on an instance: %s", a.Kind) })
}

// step returns the step of an instance's record to the phase that an action moves it to.
func (h *handout) step(to fleet.Phase, a plan.Action) step {
	return step{to: to, reason: a.Reason, basis: h.basis(a), requested: h.requested[a.ID]}
}

// move runs a step of an instance's record in a worker, unless another is in progress.
func (h *handout) move(ctx context.Context, id fleet.InstanceID, s step, run func(ended func(error))) {
	if !h.loop.steps.begin(ctx, h.view.Group.Key, id, h.view.Now, s.requested != nil, run) {
		s.requested.end(false, nil)
	}
}

// work runs a step of an instance, or an edit of the group (no id), in a worker.
func (h *handout) work(ctx context.Context, id fleet.InstanceID, step func() error) {
	h.loop.steps.work(ctx, h.view.Group.Key, id, h.view.Now, step)
}
