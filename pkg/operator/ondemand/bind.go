package ondemand

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/workload"
)

// soon is the requeue delay after a write conflict.
const soon = 100 * time.Millisecond

// bind binds a pod with the operator's gate to its machine, once that has its Node: first the
// Node is reserved for the pod, then one patch makes the pod select the Node and lifts the
// gate. Both fail if what they are based on has changed. If the machine is replaced before the
// pod is scheduled, the next one's Node is reserved.
func (r *Reconciler) bind(ctx context.Context, pod *metav1.PartialObjectMetadata, c claim, l look) (after time.Duration, err error) {
	node, after, err := r.nodeOf(ctx, pod, c)
	if err != nil || node == nil {
		return after, err
	}
	if !l.gated {
		return retried(reserveNode(ctx, r.Workload.Client(), node, pod.UID))
	}
	now, err := r.waits(ctx, pod)
	if err != nil || now == nil || !r.remember(now).gated || len(othersGates(now)) > 0 {
		return 0, err
	}
	if other, set := now.Spec.NodeSelector[v1beta1.LabelNodePodUID]; set && other != string(now.UID) {
		r.recordEvent(pod, corev1.EventTypeWarning, "OnDemandNotBound", fmt.Sprintf(
			"the gate %s stays: spec.nodeSelector has %s=%s, want none: the operator sets it to the pod's own UID",
			v1beta1.GateMachine, v1beta1.LabelNodePodUID, other))
		return 0, nil
	}
	if err := reserveNode(ctx, r.Workload.Client(), node, now.UID); err != nil {
		return retried(err)
	}
	bound := now.DeepCopy()
	selectNode(bound)
	if err := r.Workload.Client().Patch(ctx, bound, capi.Locked(now), capi.FieldOwner); err != nil {
		return retried(fmt.Errorf("lift the gate %s of pod %s: %w", v1beta1.GateMachine, client.ObjectKeyFromObject(now), err))
	}
	r.remember(bound)
	return 0, nil
}

// nodeOf returns the Node of a claim's machine from the cache, once it has the machine's provider
// ID; nil if there is none, or if it is being deleted: an event of the Node follows. If it is
// unclear which one it is, or lacks the provider ID, an event on the pod says so, and the duration
// is when to look again.
func (r *Reconciler) nodeOf(ctx context.Context, pod *metav1.PartialObjectMetadata, c claim) (*corev1.Node, time.Duration, error) {
	is := identityOf(c.infrastructure)
	nodes, err := r.Workload.NodesWith(ctx, is)
	if err != nil {
		return nil, 0, err
	}
	node, err := is.Choose(nodes)
	why := ""
	switch ambiguous := new(workload.AmbiguousError); {
	case errors.As(err, &ambiguous):
		why = ambiguous.Why
	case err != nil || node == nil || !node.DeletionTimestamp.IsZero():
		return nil, 0, err
	case !is.HasID(node):
		why = fmt.Sprintf("the gate %s stays: node %s has no providerID: start its kubelet with --provider-id=%s",
			v1beta1.GateMachine, node.Name, is.ProviderID)
	default:
		return node, 0, nil
	}
	r.recordEvent(pod, corev1.EventTypeWarning, "OnDemandNotBound", why)
	return nil, refusedPause, nil
}

// retried makes a conflict a requeue delay: the cache soon has the newer object.
func retried(err error) (after time.Duration, _ error) {
	switch {
	case apierrors.IsConflict(err):
		return soon, nil
	case apierrors.IsNotFound(err):
		return 0, nil
	}
	return 0, err
}

// reserveNode sets the label and the taint of a pod's UID on a Node.
func reserveNode(ctx context.Context, api client.Writer, node *corev1.Node, uid types.UID) error {
	to := node.DeepCopy()
	metav1.SetMetaDataLabel(&to.ObjectMeta, v1beta1.LabelNodePodUID, string(uid))
	to.Spec.Taints = append(slices.DeleteFunc(to.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1beta1.LabelNodePodUID }),
		corev1.Taint{Key: v1beta1.LabelNodePodUID, Value: string(uid), Effect: corev1.TaintEffectNoSchedule})
	tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == v1beta1.LabelNodePodUID && t.Value == string(uid) && t.Effect == corev1.TaintEffectNoSchedule
	})
	if tainted && node.Labels[v1beta1.LabelNodePodUID] == string(uid) {
		return nil
	}
	if err := api.Patch(ctx, to, capi.Locked(node), capi.FieldOwner); err != nil {
		return fmt.Errorf("reserve node %s for pod %s: %w", node.Name, uid, err)
	}
	return nil
}

// selectNode makes a pod select the Node that is reserved for it, and lifts the gate.
func selectNode(p *corev1.Pod) {
	if p.Spec.NodeSelector == nil {
		p.Spec.NodeSelector = map[string]string{}
	}
	p.Spec.NodeSelector[v1beta1.LabelNodePodUID] = string(p.UID)
	mine := corev1.Toleration{
		Key: v1beta1.LabelNodePodUID, Operator: corev1.TolerationOpEqual, Value: string(p.UID), Effect: corev1.TaintEffectNoSchedule,
	}
	if !slices.Contains(p.Spec.Tolerations, mine) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, mine)
	}
	p.Spec.SchedulingGates = slices.DeleteFunc(p.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool {
		return g.Name == v1beta1.GateMachine
	})
}
