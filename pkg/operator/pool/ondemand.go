package pool

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// The on-demand machines that pods have of a group are none of its pool: they are neither in
// its size nor in its list. But their Nodes get the pool's labels and taints, so that a pod
// finds on its own machine what it finds on the group's others.

// onDemandIDs returns the provider IDs of pods' machines of the pool's group.
func onDemandIDs(ctx context.Context, api client.Reader, pool *v1beta1.NstanceMachinePool) (ids []string, err error) {
	var all v1beta1.NstanceMachineList
	err = api.List(ctx, &all, client.InNamespace(pool.Namespace), client.UnsafeDisableDeepCopy,
		client.HasLabels{v1beta1.LabelPodUID}, client.MatchingLabels{v1beta1.LabelGroup: string(pool.Spec.Group)})
	if err != nil {
		return nil, fmt.Errorf("list the group's on-demand machines: %w", err)
	}
	for i := range all.Items {
		if id := onDemandID(&all.Items[i]); id != "" && all.Items[i].Spec.Group == pool.Spec.Group {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// onDemandID returns the provider ID of an object's on-demand machine; empty if it has none.
func onDemandID(o metav1.Object) string {
	m, ok := o.(*v1beta1.NstanceMachine)
	if !ok || m.Labels[v1beta1.LabelPodUID] == "" || !m.DeletionTimestamp.IsZero() {
		return ""
	}
	return m.Spec.ProviderID
}

// identified selects the moment in which the provider ID of a pod's machine becomes known.
func identified() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return onDemandID(e.Object) != "" },
		UpdateFunc:  func(e event.UpdateEvent) bool { return onDemandID(e.ObjectOld) != onDemandID(e.ObjectNew) },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// ofOnDemand returns the pools of the group of a pod's machine.
func (x *index) ofOnDemand(_ context.Context, o client.Object) []reconcile.Request {
	m, ok := o.(*v1beta1.NstanceMachine)
	if !ok {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []reconcile.Request
	for key, p := range x.pools {
		if key.Namespace == m.Namespace && p.group == string(m.Spec.Group) {
			out = append(out, reconcile.Request{NamespacedName: key})
		}
	}
	return out
}
