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
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/shards"
)

// workers is how many groups are looked at at a time. None of them ever waits for a
// shard, only for the API server.
const workers = 16

// indexShard finds objects in the cache by the shard they name.
const indexShard = "shardgroup.spec.shard"

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.calls, r.looks, r.memory = newCalls(perShard), newLooks(r.identities), newMemory()
	byShard := func(o client.Object) []string { return []string{string(o.(*v1beta1.NstanceShardGroup).Spec.Shard)} }
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1beta1.NstanceShardGroup{}, indexShard, byShard); err != nil {
		return err
	}
	// It hears of its own status, too: what was written last may have been decided on what
	// the cache had before.
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
		WatchesRawSource(source.Func(r.calls.begin)).
		WatchesRawSource(source.Func(r.looks.begin)).
		Complete(r)
}

// clusterChanges passes on what of a Cluster's changes matters to its groups. That it is
// there matters to those that were looked at before, and detached.
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

// ofCluster are the groups of a Cluster, if it is ours.
func (r *Reconciler) ofCluster(ctx context.Context, o client.Object) []reconcile.Request {
	if o.GetNamespace() != r.Namespace || o.GetName() != r.Cluster {
		return nil
	}
	return r.list(ctx, client.MatchingLabels{clusterv1.ClusterNameLabel: r.Cluster})
}

// ofEvent are the groups that an event of the shards is about.
func (r *Reconciler) ofEvent(e shards.Event) []reconcile.Request {
	switch e.Of {
	case shards.OfGroup:
		return []reconcile.Request{{NamespacedName: types.NamespacedName{
			Namespace: r.Namespace, Name: capi.ShardGroupName(e.Group, e.Shard),
		}}}
	case shards.OfShard:
		// All that is in the cache comes when it has been filled, so nothing is lost then.
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		return r.list(ctx, client.MatchingFields{indexShard: e.Shard})
	default:
		return nil
	}
}

// list are the objects that a filter lets through. They come from the cache, which
// fails only while the operator ends.
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
