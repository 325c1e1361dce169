package drain

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
)

// showNode sets whether the NstanceMachine's Node is found, as far as that is known, and stores
// the Node's name unless the Machine has it: a Node that was seen once is looked for by that
// name, too, so that it can't be taken for one that never was.
func (r *Reconciler) showNode(ctx context.Context, m *machines, v nodeView) error {
	if m.infra == nil {
		return nil
	}
	to := m.infra.DeepCopy()
	known := meta.FindStatusCondition(to.Status.Conditions, v1beta1.ConditionNodeFound) != nil
	var doubt *ambiguousError
	switch {
	case errors.As(v.nodeErr, &doubt):
		r.set(to, v1beta1.ConditionNodeFound, metav1.ConditionFalse, reasonAmbiguous, short(doubt.Why))
	case v.nodeErr != nil, v.justWent:
		return nil //nolint:nilerr // the drain reports it
	case v.node == nil:
		if known {
			r.set(to, v1beta1.ConditionNodeFound, metav1.ConditionFalse, reasonNoNode, "")
		}
	default:
		if m.core == nil || m.core.Status.NodeRef.Name != v.node.Name {
			to.Status.NodeName = v.node.Name
		}
		if known || to.Status.NodeName != m.infra.Status.NodeName {
			r.set(to, v1beta1.ConditionNodeFound, metav1.ConditionTrue, reasonFound, "")
		}
	}
	return r.show(ctx, m, to)
}

// showBlocked sets whether something is in the way of the drain.
func (r *Reconciler) showBlocked(ctx context.Context, m *machines, is metav1.ConditionStatus, reason, message string) error {
	if m.infra == nil {
		return nil
	}
	to := m.infra.DeepCopy()
	r.set(to, v1beta1.ConditionDrainBlocked, is, reason, message)
	return r.show(ctx, m, to)
}

func (r *Reconciler) set(to *v1beta1.NstanceMachine, kind string, is metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&to.Status.Conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: message,
		ObservedGeneration: to.Generation, LastTransitionTime: metav1.NewTime(r.Now()),
	})
}

// show patches a changed status.
func (r *Reconciler) show(ctx context.Context, m *machines, to *v1beta1.NstanceMachine) error {
	if equality.Semantic.DeepEqual(to.Status, m.infra.Status) {
		return nil
	}
	failed := r.Client.Status().Patch(ctx, to, capi.Locked(m.infra), capi.FieldOwner)
	if apierrors.IsConflict(failed) {
		return nil // the cache is stale; the next pass writes it
	}
	if client.IgnoreNotFound(failed) != nil {
		return fmt.Errorf("write the status of NstanceMachine %s: %w", client.ObjectKeyFromObject(to), failed)
	}
	if failed == nil {
		m.infra = to
	}
	return nil
}

// nameOf returns a Node's name; empty without a Node.
func nameOf(n *corev1.Node) string {
	if n == nil {
		return ""
	}
	return n.Name
}
