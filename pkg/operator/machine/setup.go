package machine

import (
	"context"
	"maps"
	"slices"
	"time"

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

const (
	// workers bounds concurrent reconciliations: most of them wait for a shard's answer.
	workers = 32
	// perShard bounds the workers that wait for one shard, so that a slow shard leaves most
	// workers to the others.
	perShard = 8
	// byInstance indexes NstanceMachines by their instance. Deleted ones that know only its
	// idempotency key are indexed by group.
	byInstance = "machine.spec.instanceID"
)

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1beta1.NstanceMachine{}, byInstance, instanceOf)
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("nstancemachine").
		For(&v1beta1.NstanceMachine{}).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(infrastructureOf), builder.WithPredicates(machineChanges())).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.ofCluster), builder.WithPredicates(clusterChanges())).
		Watches(&v1beta1.NstanceShardGroup{}, handler.EnqueueRequestsFromMapFunc(r.ofPart), builder.WithPredicates(partChanges())).
		WatchesRawSource(r.Shards.Source(r.ofEvent)).
		WithOptions(options()).
		Complete(r)
}

func options() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers, SkipNameValidation: new(true),
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, time.Minute),
	}
}

func instanceOf(o client.Object) []string {
	m, ok := o.(*v1beta1.NstanceMachine)
	switch {
	case !ok:
		return nil
	case m.Spec.InstanceID != "":
		return []string{string(m.Spec.InstanceID)}
	case m.Spec.IdempotencyKey != "" && !m.DeletionTimestamp.IsZero():
		return []string{keyed(string(m.Spec.Shard), string(m.Spec.Group))}
	}
	return nil
}

// keyed is the index value for an instance of which only the key is known.
func keyed(shard, group string) string { return shard + "/" + group }

// infrastructureOf returns the NstanceMachine that a Machine refers to.
func infrastructureOf(_ context.Context, o client.Object) []reconcile.Request {
	m, ok := o.(*clusterv1.Machine)
	if !ok || !capi.RefersTo(m, v1beta1.MachineKind(), m.Spec.InfrastructureRef.Name) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.InfrastructureRef.Name}}}
}

// ofEvent returns the NstanceMachines that a shard's event may concern, including all without
// a shard or an instance yet.
func (r *Reconciler) ofEvent(e shards.Event) []reconcile.Request {
	concerns := func(*v1beta1.NstanceMachine) bool { return true }
	switch e.Of {
	case shards.OfInstance:
		named := r.list(context.Background(), concerns, client.MatchingFields{byInstance: e.Instance})
		return append(named, r.list(context.Background(), concerns, client.MatchingFields{byInstance: keyed(e.Shard, e.Group)})...)
	case shards.OfShard:
		concerns = func(m *v1beta1.NstanceMachine) bool { return m.Spec.Shard == "" || string(m.Spec.Shard) == e.Shard }
	case shards.OfGroup:
		concerns = func(m *v1beta1.NstanceMachine) bool {
			retried := m.Status.Creation != nil && m.Status.Creation.RetryTime != nil
			return (m.Spec.InstanceID == "" || retried) && string(m.Spec.Group) == e.Group
		}
	default:
		return nil
	}
	return r.list(context.Background(), concerns)
}

func (r *Reconciler) ofCluster(ctx context.Context, o client.Object) []reconcile.Request {
	belongs := func(m *v1beta1.NstanceMachine) bool {
		name := m.Labels[clusterv1.ClusterNameLabel]
		return name == "" || name == o.GetName()
	}
	return r.list(ctx, belongs, client.InNamespace(o.GetNamespace()))
}

// ofPart returns the NstanceMachines that wait for their pool's NstanceShardGroup to go.
func (r *Reconciler) ofPart(ctx context.Context, o client.Object) []reconcile.Request {
	g, ok := o.(*v1beta1.NstanceShardGroup)
	if !ok {
		return nil
	}
	belongs := func(m *v1beta1.NstanceMachine) bool {
		return m.Spec.Group == g.Spec.Group && m.Spec.Shard == g.Spec.Shard && !m.DeletionTimestamp.IsZero()
	}
	return r.list(ctx, belongs, client.InNamespace(g.Namespace))
}

func (r *Reconciler) list(
	ctx context.Context, concerns func(*v1beta1.NstanceMachine) bool, which ...client.ListOption,
) []reconcile.Request {
	var all v1beta1.NstanceMachineList
	if err := r.Client.List(ctx, &all, append(which, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil // the cache has stopped, and so does this controller
	}
	var requests []reconcile.Request
	for i := range all.Items {
		if concerns(&all.Items[i]) {
			requests = append(requests, request(&all.Items[i]))
		}
	}
	return requests
}

func request(m *v1beta1.NstanceMachine) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)}
}

// machineChanges selects relevant changes of Machines. Their status changes often.
func machineChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*clusterv1.Machine)
		now, also := e.ObjectNew.(*clusterv1.Machine)
		return !ok || !also || was.Generation != now.Generation || remedy(was) != remedy(now) ||
			!maps.Equal(was.Annotations, now.Annotations)
	}}
}

func clusterChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration()
	}}
}

func partChanges() predicate.Predicate {
	never := func(event.CreateEvent) bool { return false }
	return predicate.Funcs{CreateFunc: never, UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*v1beta1.NstanceShardGroup)
		now, also := e.ObjectNew.(*v1beta1.NstanceShardGroup)
		return ok && also && (was.DeletionTimestamp.IsZero() != now.DeletionTimestamp.IsZero() ||
			!slices.Equal(was.Spec.Remove, now.Spec.Remove))
	}}
}
