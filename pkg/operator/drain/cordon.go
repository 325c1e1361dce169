package drain

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cordon keeps new pods off a node, and takes the node from external load balancers before its
// pods go, in one write: a balancer that still sends requests to a node without pods, or to a
// machine that is gone, loses them.
func (r *Reconciler) cordon(ctx context.Context, n *corev1.Node) error {
	if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded && n.Spec.Unschedulable {
		return nil
	}
	was := n.DeepCopy()
	n.Spec.Unschedulable = true
	metav1.SetMetaDataLabel(&n.ObjectMeta, corev1.LabelNodeExcludeBalancers, n.Labels[corev1.LabelNodeExcludeBalancers])
	if err := r.Workload.Client().Patch(ctx, n, client.MergeFrom(was)); err != nil {
		return fmt.Errorf("cordon node %s: %w", was.Name, err)
	}
	return nil
}
