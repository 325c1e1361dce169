package ondemand

import (
	"context"
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

// workers is how many pods are worked on at a time.
const workers = 8

// SetupWithManager has the manager run the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	made := handler.EnqueueRequestsFromMapFunc(ofObject)
	return ctrl.NewControllerManagedBy(mgr).
		Named("ondemand").
		WatchesRawSource(r.Workload.Source(podMeta(), ofPod, r.podChanges())).
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

// counts reports whether a pod asks for an instance.
func counts(pod client.Object) bool {
	_, ok := asks(pod)
	return ok
}

// podChanges lets through what of a pod counts here: that it asks, and that one that
// asked is gone. Its status changes often.
func (r *Reconciler) podChanges() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return counts(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, _ := asks(e.ObjectOld)
			now, _ := asks(e.ObjectNew)
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

// ofObject is the pod that an object was made for.
func ofObject(_ context.Context, o client.Object) []reconcile.Request {
	if pod, ok := podOf(o); ok {
		return []reconcile.Request{{NamespacedName: pod}}
	}
	return nil
}

// comesOrGoes lets through that an object is there, is to go, or is gone.
func comesOrGoes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return (e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
	}}
}

// ofCluster are all pods that ask, and all for which something was made, when the
// Cluster comes, or is not paused any more.
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
	} // or else there is no connection, and a new one tells of all pods
	var machines clusterv1.MachineList
	err := r.Client.List(ctx, &machines, client.InNamespace(o.GetNamespace()), client.HasLabels{LabelPodUID}, client.UnsafeDisableDeepCopy)
	if err == nil {
		for i := range machines.Items {
			requests = append(requests, ofObject(ctx, &machines.Items[i])...)
		}
	}
	return requests
}
