package ondemand

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// workers bounds concurrent reconciliations.
const workers = 8

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	made := handler.EnqueueRequestsFromMapFunc(ofObject)
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1beta1.NstanceMachine{}, byProviderID, providerID)
	if err != nil {
		return fmt.Errorf("index NstanceMachines: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("ondemand").
		WatchesRawSource(r.Workload.Source(podMeta(), ofPod, r.podChanges())).
		WatchesRawSource(r.Workload.Source(&corev1.Node{}, r.ofNode, predicate.Funcs{UpdateFunc: nodeChanged})).
		Watches(&clusterv1.Machine{}, made, builder.WithPredicates(comesOrGoes())).
		Watches(&v1beta1.NstanceMachine{}, made, builder.WithPredicates(comesOrGoes())).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.ofCluster),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers, SkipNameValidation: new(true),
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, time.Minute),
		}).
		Complete(r)
}

// counts reports whether a pod requests an instance.
func counts(pod client.Object) bool {
	_, ok := asks(pod)
	return ok
}

// podChanges selects relevant changes of pods: of those with a request, and the deletion of
// pods that had one. A pod's status changes often.
func (r *Reconciler) podChanges() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return counts(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, _ := asks(e.ObjectOld)
			now, _ := asks(e.ObjectNew)
			key := client.ObjectKeyFromObject(e.ObjectNew)
			_, held := r.holds.Load(key)
			_, served := r.served.Load(key)
			if (held || served) && e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion() {
				return true // by fields outside its metadata
			}
			return was != now || e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			_, served := r.served.Load(client.ObjectKeyFromObject(e.Object))
			return served || counts(e.Object)
		},
		GenericFunc: func(e event.GenericEvent) bool { return counts(e.Object) },
	}
}

func ofPod(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

// ofObject returns the pod that an object was created for.
func ofObject(_ context.Context, o client.Object) []reconcile.Request {
	if pod, ok := podOf(o); ok {
		return []reconcile.Request{{NamespacedName: pod}}
	}
	return nil
}

// comesOrGoes selects the creation and the start and end of the deletion of objects, their
// hand-over to another pod, and that the provider ID of a Node becomes known.
func comesOrGoes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return (e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil) ||
			ownerOf(e.ObjectOld) != ownerOf(e.ObjectNew) || !slices.Equal(providerID(e.ObjectOld), providerID(e.ObjectNew))
	}}
}

// byProviderID is this package's index of pods' NstanceMachines.
const byProviderID = "on-demand.nstance.dev/provider-id"

func providerID(o client.Object) []string {
	if m, ok := o.(*v1beta1.NstanceMachine); ok && m.Spec.ProviderID != "" && ownerOf(m) != "" {
		return []string{m.Spec.ProviderID}
	}
	return nil
}

// ofNode returns the pod that a Node's machine was requested for.
func (r *Reconciler) ofNode(ctx context.Context, o client.Object) []reconcile.Request {
	node, ok := o.(*corev1.Node)
	if !ok || node.Spec.ProviderID == "" {
		return nil
	}
	var machines v1beta1.NstanceMachineList
	err := r.Client.List(ctx, &machines, client.InNamespace(r.Cluster.Namespace), client.MatchingFields{byProviderID: node.Spec.ProviderID})
	if err != nil {
		return nil // the cache has stopped, and so does this controller
	}
	var requests []reconcile.Request
	for i := range machines.Items {
		requests = append(requests, ofObject(ctx, &machines.Items[i])...)
	}
	return requests
}

// nodeChanged ignores the frequent updates of kubelets.
func nodeChanged(e event.UpdateEvent) bool {
	old, ok := e.ObjectOld.(*corev1.Node)
	now, ok2 := e.ObjectNew.(*corev1.Node)
	return !ok || !ok2 || old.Spec.ProviderID != now.Spec.ProviderID
}

// ofCluster returns all pods with a request or with objects, when the Cluster is created or
// unpaused.
func (r *Reconciler) ofCluster(ctx context.Context, o client.Object) []reconcile.Request {
	if client.ObjectKeyFromObject(o) != r.Cluster {
		return nil
	}
	var requests []reconcile.Request
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := r.Workload.Client().List(ctx, pods, client.UnsafeDisableDeepCopy); err == nil {
		for i := range pods.Items {
			if counts(&pods.Items[i]) {
				requests = append(requests, ofPod(ctx, &pods.Items[i])...)
			}
		}
	} // on an error there is no connection, and a new one lists all pods
	var machines clusterv1.MachineList
	err := r.Client.List(ctx, &machines, client.InNamespace(o.GetNamespace()), client.HasLabels{LabelPodUID}, client.UnsafeDisableDeepCopy)
	if err == nil {
		for i := range machines.Items {
			requests = append(requests, ofObject(ctx, &machines.Items[i])...)
		}
	}
	return requests
}
