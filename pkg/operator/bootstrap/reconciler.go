package bootstrap

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
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
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// fieldOwner owns the fields that an import wrote. It differs from capi.FieldOwner: a
// controller that applies other fields under that owner must not drop these.
const fieldOwner = client.FieldOwner("nstance-operator-import")

// Shards are the shards of the operator's configuration.
type Shards interface {
	Names() []string
	State(shard string) (shards.State, bool)
	Groups(shard string) []*nstancev1.GroupStatus
	Source(func(shards.Event) []reconcile.Request) source.Source
}

// Reconciler imports groups. All fields are required and must not change after the start.
type Reconciler struct {
	Client   client.Client
	Shards   Shards
	Recorder events.EventRecorder

	// Namespace and Cluster identify the Cluster of the pools.
	Namespace, Cluster string

	seen map[string]bool   // groups that have had a pool since the operator started
	told map[string]string // by group: the reason in the last NotImported event
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.seen, r.told = map[string]bool{}, map[string]string{}
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return r.requests() })
	// Only creation and deletion matter, not changes.
	exists := builder.WithPredicates(predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectNew.GetDeletionTimestamp() != nil },
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("bootstrap").
		WithOptions(controller.Options{SkipNameValidation: new(true)}).
		Watches(&clusterv1.Cluster{}, one).
		Watches(&clusterv1.MachinePool{}, one, exists).
		Watches(&v1beta1.NstanceMachinePool{}, one, exists).
		Watches(&v1beta1.NstanceShardGroup{}, one, exists).
		// The source sends an event for each shard at the start, so there is always a first
		// pass.
		WatchesRawSource(r.Shards.Source(func(e shards.Event) []reconcile.Request {
			if e.Of != shards.OfShard && e.Of != shards.OfGroup {
				return nil
			}
			return r.requests()
		})).
		Complete(r)
}

func (r *Reconciler) requests() []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: r.Cluster}}}
}

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,namespace=nstance,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinepools,namespace=nstance,verbs=list;watch;create
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=nstancemachinepools,namespace=nstance,verbs=list;watch;create
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=nstanceshardgroups,namespace=nstance,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,namespace=nstance,verbs=create;patch

// Reconcile imports all groups that have no pool. The request is always the same. A group that
// can't be imported does not hold up the others.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var cluster clusterv1.Cluster
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Cluster}, &cluster)
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("read Cluster %s: %w", r.Cluster, err)
	case !cluster.DeletionTimestamp.IsZero(), capi.Paused(&cluster, &cluster):
		return ctrl.Result{}, nil
	}
	v, err := r.read(ctx)
	if err != nil || v == nil {
		return ctrl.Result{}, err
	}
	for i := range v.infra {
		r.seen[string(v.infra[i].Spec.Group)] = true
	}
	for _, key := range forget(*v) {
		delete(r.seen, key)
		delete(r.told, key)
	}
	var failed error
	for _, one := range missing(*v) {
		failed = errors.Join(failed, r.make(ctx, &cluster, one))
	}
	return ctrl.Result{}, failed
}

// read returns the input of the decision, or nil while some shard may have groups that it has
// not reported.
func (r *Reconciler) read(ctx context.Context) (*importView, error) {
	v := &importView{groups: map[string][]part{}, seen: r.seen}
	for _, name := range r.Shards.Names() {
		// Groups of an unreachable shard may have changed since: a pool made of them could
		// restore what was deleted, or leave out a shard.
		if state, _ := r.Shards.State(name); !state.Known || !state.Synced {
			return nil, nil //nolint:nilnil // documented
		}
		for _, group := range r.Shards.Groups(name) {
			if !leaves(group) {
				v.groups[group.GetKey()] = append(v.groups[group.GetKey()], part{shard: name, group: group})
			}
		}
	}
	var infra v1beta1.NstanceMachinePoolList
	var pools clusterv1.MachinePoolList
	var parts v1beta1.NstanceShardGroupList
	for _, list := range []client.ObjectList{&infra, &pools, &parts} {
		if err := r.Client.List(ctx, list, client.InNamespace(r.Namespace)); err != nil {
			return nil, fmt.Errorf("list pools: %w", err)
		}
	}
	v.infra, v.pools, v.shards = infra.Items, pools.Items, parts.Items
	return v, nil
}

// make creates both objects of a pool. The MachinePool comes first: without its infrastructure
// it has no effect, and the next pass completes it if this one fails in between. They are
// created and not applied, so that a concurrently created object of the same name is kept.
func (r *Reconciler) make(ctx context.Context, cluster *clusterv1.Cluster, one imported) error {
	if one.taken != "" {
		if r.told[one.group()] != one.taken {
			r.told[one.group()] = one.taken
			r.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, "NotImported", "Import", "group %s: %s", one.group(), one.taken)
		}
		return nil
	}
	infra, err := one.infrastructure(r.Namespace, r.Cluster)
	if err != nil {
		return err
	}
	if !one.half {
		err := r.Client.Create(ctx, one.machinePool(r.Namespace, r.Cluster), fieldOwner)
		if apierrors.IsAlreadyExists(err) {
			return nil // judged once the cache has it
		}
		if err != nil {
			return fmt.Errorf("import group %s: create MachinePool: %w", one.group(), err)
		}
	}
	err = r.Client.Create(ctx, infra, fieldOwner)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("import group %s: create NstanceMachinePool: %w", one.group(), err)
	}
	r.seen[one.group()] = true
	returns := ""
	if one.static() {
		returns = "; a shard's static config names it, so the operator's next start imports it again if its pool is deleted"
	}
	r.Recorder.Eventf(cluster, nil, corev1.EventTypeNormal, "Imported", "Import",
		"group %s: %d replicas on %v%s", one.group(), one.replicas(), one.shards(), returns)
	return nil
}
