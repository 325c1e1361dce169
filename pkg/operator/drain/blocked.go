package drain

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// blockedAfter is how long a drain lasts before it is reported what is in its way, and how long
// until changes of that are reported again: most pods go within this time.
const blockedAfter = 30 * time.Second

// blockers returns what holds a drain up, of what is left. A pod in its grace period, and one
// whose turn or answer is still to come, does not.
func blockers(left []leftover, now time.Time) []leftover {
	return slices.DeleteFunc(slices.Clone(left), func(l leftover) bool {
		switch l.why {
		case whyAsked, whyLater:
			return true
		case whyGoing:
			return now.Before(l.until)
		}
		return false
	})
}

// keyOf identifies blockers: the pods, and the budgets or other reasons. The numbers in a
// budget's message change often and are not part of it.
func keyOf(all []leftover) string {
	var b strings.Builder
	for _, l := range all {
		why := l.why
		if l.budgets != "" {
			why = l.budgets
		}
		b.WriteString(l.pod + "\n" + why + "\n")
	}
	return b.String()
}

// blocked reports what is in the way of a drain, while that can still be helped: in a condition
// of the NstanceMachine, and in an event there, on the Machine and on the Node; again when it
// has changed.
func (r *Reconciler) blocked(ctx context.Context, d *drain, v nodeView, m *machines, left []leftover) error {
	by := blockers(left, v.now)
	key := keyOf(by)
	switch {
	case len(by) == 0:
		d.blocked = ""
		return r.unblocked(ctx, m, reasonBlocked, reasonHeld)
	case v.now.Sub(d.since) < blockedAfter:
		return r.unblocked(ctx, m, reasonHeld)
	case key == d.blocked, d.blocked != "" && v.now.Sub(d.blockedAt) < blockedAfter:
		return nil
	}
	note := "The drain is blocked by " + list(by)
	if end := v.instance.GetDrain().GetDeleteAt(); end != nil {
		note += "; the instance will be removed all the same at " + end.AsTime().UTC().Format(time.RFC3339)
	}
	known := m.infra != nil && isTrue(m.infra, note)
	if !known {
		if err := r.showBlocked(ctx, m, metav1.ConditionTrue, reasonBlocked, short(note)); err != nil {
			return err
		}
		log.FromContext(ctx).Info("the drain is blocked", "note", note)
		r.recordEvent(*m, reasonBlocked, note) // after the condition, so that it is an event of its own
		if v.node != nil {
			if err := r.recordOnNode(ctx, v.node, reasonBlocked, note); err != nil {
				log.FromContext(ctx).Error(err, "record an event", "node", v.node.Name)
			}
		}
	}
	d.blocked, d.blockedAt = key, v.now
	return nil
}

// isTrue reports whether the condition says this already, as after a restart of the operator.
func isTrue(m *v1beta1.NstanceMachine, note string) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDrainBlocked)
	return c != nil && c.Status == metav1.ConditionTrue && c.Message == short(note)
}

// unblocked ends the condition if it has one of these reasons.
func (r *Reconciler) unblocked(ctx context.Context, m *machines, reasons ...string) error {
	if m.infra == nil {
		return nil
	}
	c := meta.FindStatusCondition(m.infra.Status.Conditions, v1beta1.ConditionDrainBlocked)
	if c == nil || c.Status != metav1.ConditionTrue || !slices.Contains(reasons, c.Reason) {
		return nil
	}
	return r.showBlocked(ctx, m, metav1.ConditionFalse, reasonUnblocked, "")
}

// budgetsOf returns the names of the disruption budgets that forbid an eviction, as far as the
// API server's message has them.
func budgetsOf(causes []metav1.StatusCause) string {
	const before = "The disruption budget "
	var names []string
	for _, c := range causes {
		if rest, is := strings.CutPrefix(c.Message, before); is {
			name, _, _ := strings.Cut(rest, " ")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}
