package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// deleteAgain is when a VM whose deletion was accepted, and which is still
// there, is asked to go once more.
const deleteAgain = 30 * time.Second

// leave takes one step of an instance's way out.
func (l *Loop) leave(ctx context.Context, a plan.Action) error {
	switch a.Kind {
	case plan.Drain:
		return l.records.move(ctx, a.ID, fleet.Draining, a.Reason, func(i *fleet.Instance) {
			i.Drain = &fleet.Drain{Reason: a.Reason, DeleteAt: a.At.UTC()}
		})
	case plan.Delete:
		return l.remove(ctx, a)
	case plan.Tombstone:
		return l.records.move(ctx, a.ID, fleet.Deleted, a.Reason, nil)
	case plan.Prune:
		return l.records.prune(ctx, a.ID)
	default:
		return fmt.Errorf("no step of an instance: %s", a.Kind)
	}
}

// remove asks the provider to delete an instance, which its record says first.
// The poller then watches for the end, and the tombstone is another step.
func (l *Loop) remove(ctx context.Context, a plan.Action) error {
	if err := l.records.move(ctx, a.ID, fleet.Deleting, a.Reason, nil); err != nil {
		return err
	}
	r, ok := l.cfg.Ledger.Get(a.ID)
	if !ok || r.Phase != fleet.Deleting {
		return nil
	}
	l.changed(r.GroupKey(), a.ID) // its streams are to be cut now, not when the provider has answered
	g, _ := l.cfg.Groups.Group(r.GroupKey())
	l.balancer.Deregister(ctx, g, r) // before its machine goes
	l.lookOnce(ctx, r)
	if err := l.deleteVM(ctx, r); err != nil {
		return because(ReasonProvider, fmt.Errorf("delete instance %s: %w", a.ID, err))
	}
	l.log.Info("delete accepted", slog.String("instance", string(a.ID)), slog.String("reason", r.Reason))
	now := time.Now()
	l.observed.with(a.ID, func(b *observation) { b.retryAt = now.Add(deleteAgain) })
	l.poller.poll(a.ID, now)
	return nil
}

// lookOnce asks for a VM that is young and was never shown by the provider, just
// before it is deleted. Once shown, its absence is believed; otherwise its end
// could be told from its being slow to appear only after a while.
func (l *Loop) lookOnce(ctx context.Context, r fleet.Instance) {
	if b := l.observed.get(r.ID); !b.young(r, time.Now()) {
		return
	}
	if got := l.cloud.get(ctx, refOf(r)); got.err == nil { // else it only costs time
		l.observed.see(r, got, time.Now())
	}
}

func (l *Loop) deleteVM(ctx context.Context, r fleet.Instance) error {
	free, err := l.cloud.deletes.take(ctx)
	if err != nil {
		return err
	}
	defer free()
	return l.cloud.delete(ctx, refOf(r))
}
