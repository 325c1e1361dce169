package shardgroup

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
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
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/shards"
)

// workers bounds concurrent reconciliations. Up to perShard of them wait for the same shard, so
// several shards may hang, such as those of one region, and workers are left for the others.
const workers = 8 * perShard

// indexShard indexes objects by their shard.
const indexShard = "shardgroup.spec.shard"

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.memory = newMemory()
	byShard := func(o client.Object) []string { return []string{string(o.(*v1beta1.NstanceShardGroup).Spec.Shard)} }
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1beta1.NstanceShardGroup{}, indexShard, byShard); err != nil {
		return err
	}
	// It also watches its own status: the last status may have been based on a stale cache.
	return ctrl.NewControllerManagedBy(mgr).
		Named("shardgroup").
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstPause, lastPause),
			SkipNameValidation:      new(true),
		}).
		For(&v1beta1.NstanceShardGroup{}).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.ofCluster), builder.WithPredicates(clusterChanges())).
		WatchesRawSource(r.Shards.Source(r.ofEvent)).
		Complete(r)
}

// clusterChanges selects relevant changes of Clusters. A Cluster's creation matters to objects
// that were reconciled before it and detached.
func clusterChanges() predicate.Predicate {
	paused := func(o client.Object) bool {
		p := o.(*clusterv1.Cluster).Spec.Paused
		return p != nil && *p
	}
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return paused(e.ObjectOld) != paused(e.ObjectNew) ||
				e.ObjectOld.GetDeletionTimestamp() == nil && e.ObjectNew.GetDeletionTimestamp() != nil
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// ofCluster returns the groups of a Cluster, if it is ours.
func (r *Reconciler) ofCluster(ctx context.Context, o client.Object) []reconcile.Request {
	if o.GetNamespace() != r.Namespace || o.GetName() != r.Cluster {
		return nil
	}
	return r.list(ctx, client.MatchingLabels{clusterv1.ClusterNameLabel: r.Cluster})
}

// ofEvent returns the groups that an event of the shards concerns.
func (r *Reconciler) ofEvent(e shards.Event) []reconcile.Request {
	switch e.Of {
	case shards.OfGroup:
		return []reconcile.Request{{NamespacedName: types.NamespacedName{
			Namespace: r.Namespace, Name: capi.ShardGroupName(e.Group, e.Shard),
		}}}
	case shards.OfShard:
		// When the cache has filled, all its objects are enqueued anyway.
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		return r.list(ctx, client.MatchingFields{indexShard: e.Shard})
	default:
		return nil
	}
}

// list returns the objects that match a filter. It reads the cache, which fails only during
// shutdown.
func (r *Reconciler) list(ctx context.Context, filter client.ListOption) (out []reconcile.Request) {
	var all v1beta1.NstanceShardGroupList
	if err := r.Client.List(ctx, &all, client.InNamespace(r.Namespace), filter, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	for n := range all.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[n])})
	}
	return out
}
