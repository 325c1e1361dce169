package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/shards"
	"github.com/nstance/nstance/pkg/operator/workload"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// DefaultGrace is used when Reconciler.Grace is zero.
const DefaultGrace = 50 * time.Millisecond

// DefaultDoubt is used when Reconciler.Doubt is zero: much longer than the delay of a working
// stream.
const DefaultDoubt = time.Minute

// nodesAgain is the retry delay after nodes could not be read.
const nodesAgain = 30 * time.Second

// Shards is what a pool needs of the shards.
type Shards interface {
	State(shard string) (shards.State, bool)
	Group(shard, group string) *nstancev1.GroupStatus
	Instance(shard, id string) *nstancev1.InstanceStatus
	// Missing reports whether the instance certainly does not exist. If it finds out only
	// later, an event follows.
	Missing(shard, group, id string) bool
	Instances(shard, group string) []*nstancev1.InstanceStatus
	Source(requests func(shards.Event) []reconcile.Request) source.Source
}

// Nodes are the workload cluster's.
type Nodes interface {
	// NodeOf returns a machine's Node; nil if there is none. The error is a
	// *workload.AmbiguousError if it is unclear which one it is.
	NodeOf(ctx context.Context, machine workload.Identity) (*corev1.Node, error)
	Client() client.Client
	// Reader reads uncached.
	Reader() client.Reader
	Source(o client.Object, requests handler.MapFunc, predicates ...predicate.Predicate) source.Source
}

// Reconciler reconciles NstanceMachinePools: their NstanceShardGroups, the list of their
// machines, and an NstanceMachine for each machine.
type Reconciler struct {
	Client client.Client
	// Reader reads uncached.
	Reader client.Reader
	Shards Shards
	Nodes  Nodes
	Now    func() time.Time
	// Grace is how long a pool with fewer replicas waits until the machines to remove are
	// named, before the shards may choose; 0: DefaultGrace. So the replicas may be lowered
	// before a machine is named.
	Grace time.Duration
	// Doubt is how long an otherwise unknown ID stays in a pool's list while all shards are
	// synced; 0: DefaultDoubt.
	Doubt time.Duration

	index     index
	waits     waits
	sizing    sizing
	strangers strangers
}

// SetupWithManager registers two controllers: one for the sizes of a pool's
// NstanceShardGroups, and one for everything else, so that scaling does not wait for that.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if r.Grace == 0 {
		r.Grace = DefaultGrace
	}
	if r.Doubt == 0 {
		r.Doubt = DefaultDoubt
	}
	if err := (&sizer{Reconciler: r}).setup(mgr); err != nil {
		return err
	}
	owned := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &v1beta1.NstanceMachinePool{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("nstancemachinepool").
		For(&v1beta1.NstanceMachinePool{}).
		Owns(&v1beta1.NstanceShardGroup{}).
		Watches(&v1beta1.NstanceMachine{}, owned, wanted()).
		Watches(&v1beta1.NstanceMachine{}, handler.EnqueueRequestsFromMapFunc(r.index.ofOnDemand), builder.WithPredicates(identified())).
		Watches(&clusterv1.MachinePool{}, handler.EnqueueRequestsFromMapFunc(ofMachinePool), wanted()).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.ofMachine), wanted()).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.ofCluster), wanted()).
		WatchesRawSource(r.Shards.Source(r.index.ofEvent)).
		WatchesRawSource(r.Nodes.Source(&corev1.Node{}, r.index.ofNode, predicate.Funcs{UpdateFunc: nodeChanged})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, SkipNameValidation: new(true)}).
		Complete(r)
}

// wanted ignores status updates, which are frequent.
func wanted() builder.Predicates {
	return builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,namespace=nstance,resources=nstancemachinepools,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,namespace=nstance,resources=nstancemachinepools/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,namespace=nstance,resources=nstancemachinepools/finalizers,verbs=update
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,namespace=nstance,resources=nstanceshardgroups,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,namespace=nstance,resources=nstanceshardgroups,verbs=create;patch;delete
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,namespace=nstance,resources=nstancemachines,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=cluster.x-k8s.io,namespace=nstance,resources=clusters,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,namespace=nstance,resources=machinepools,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,namespace=nstance,resources=machines,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch

// Reconcile makes one pass over a pool.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s, err := r.read(ctx, r.Client, req.NamespacedName)
	if apierrors.IsNotFound(err) {
		r.index.forget(req.NamespacedName)
		r.strangers.retain(req.NamespacedName, nil)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	r.index.note(s)
	switch {
	case s.paused:
		return again(ctrl.Result{}, r.writePaused(ctx, s))
	case !s.pool.DeletionTimestamp.IsZero():
		return again(ctrl.Result{}, r.delete(ctx, s))
	case s.owner == nil:
		return again(ctrl.Result{}, r.writeStatus(ctx, s, nil))
	}
	if err := r.ensureFinalizer(ctx, s.pool); err != nil {
		return again(ctrl.Result{}, err)
	}
	return r.sync(ctx, s)
}

// sync does all parts of a pass, even if one fails.
func (r *Reconciler) sync(ctx context.Context, s *scope) (ctrl.Result, error) {
	result := s.again
	machinesErr := r.syncMachines(ctx, s)
	listErr := r.syncList(ctx, s)
	if r.strangers.any(client.ObjectKeyFromObject(s.pool)) {
		result = sooner(result, ctrl.Result{RequeueAfter: r.Doubt})
	}
	nodes, nodesErr := r.syncNodes(ctx, s)
	var lost *nodesLostError
	if errors.As(nodesErr, &lost) {
		ctrl.LoggerFrom(ctx).V(1).Info("could not read nodes", "error", lost.err.Error())
		nodesErr = nil
		result = sooner(result, ctrl.Result{RequeueAfter: nodesAgain})
	}
	templateErr := r.syncTemplate(ctx, s)
	statusErr := r.writeStatus(ctx, s, nodes)
	return again(result, machinesErr, listErr, nodesErr, templateErr, statusErr)
}

func (r *Reconciler) ensureFinalizer(ctx context.Context, pool *v1beta1.NstanceMachinePool) error {
	old := pool.DeepCopy()
	if !controllerutil.AddFinalizer(pool, v1beta1.Finalizer) {
		return nil
	}
	if err := r.Client.Patch(ctx, pool, capi.Locked(old), capi.FieldOwner); err != nil {
		return fmt.Errorf("add the finalizer: %w", err)
	}
	return nil
}

// again joins errors. A conflict is not an error: the cache soon has the newer object. Nor is
// errSizing.
func again(result ctrl.Result, errs ...error) (ctrl.Result, error) {
	var bad []error
	for _, err := range errs {
		if err == nil {
			continue
		}
		if ignoreConflict(err) == nil {
			result = sooner(result, ctrl.Result{RequeueAfter: 50 * time.Millisecond})
			continue
		}
		bad = append(bad, err)
	}
	return result, errors.Join(bad...)
}

func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) || errors.Is(err, errSizing) {
		return nil
	}
	return err
}

func sooner(a, b ctrl.Result) ctrl.Result {
	if a.RequeueAfter == 0 || (b.RequeueAfter > 0 && b.RequeueAfter < a.RequeueAfter) {
		return b
	}
	return a
}

func kind() schema.GroupVersionKind { return v1beta1.GroupVersion().WithKind("NstanceMachinePool") }
