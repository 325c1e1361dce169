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
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// DefaultGrace is the Grace of a Reconciler that names none.
const DefaultGrace = 50 * time.Millisecond

// DefaultDoubt is the Doubt of a Reconciler that names none: much longer than a stream
// that stands takes to tell something.
const DefaultDoubt = time.Minute

// nodesAgain is when nodes are looked for again that could not be read.
const nodesAgain = 30 * time.Second

// Shards is what a pool needs to know of all shards.
type Shards interface {
	State(shard string) (shards.State, bool)
	Group(shard, group string) *nstancev1.GroupStatus
	Instance(shard, id string) *nstancev1.InstanceStatus
	// Missing reports whether there certainly is none. It may know that only later, and
	// tells that by an event.
	Missing(shard, group, id string) bool
	Instances(shard, group string) []*nstancev1.InstanceStatus
	Source(requests func(shards.Event) []reconcile.Request) source.Source
}

// Nodes are those of the workload cluster.
type Nodes interface {
	// NodeByProviderID returns nil when there is no such node.
	NodeByProviderID(ctx context.Context, id string) (*corev1.Node, error)
	Client() client.Client
	Source(o client.Object, requests handler.MapFunc, predicates ...predicate.Predicate) source.Source
}

// Reconciler keeps NstanceMachinePools: their parts on the shards, the list of their
// machines, and an NstanceMachine for each of these.
type Reconciler struct {
	Client client.Client
	// Reader reads past the cache.
	Reader client.Reader
	Shards Shards
	Nodes  Nodes
	Now    func() time.Time
	// Grace is how long a pool with fewer replicas waits for somebody to say which
	// machines are to go, before their shards may choose; 0: DefaultGrace. Who lowers
	// the replicas first and names the machine after that is still understood.
	Grace time.Duration
	// Doubt is how long an id that is in a pool's list, and that nothing else is known
	// of, stays there though all shards tell everything; 0: DefaultDoubt.
	Doubt time.Duration

	index     index
	waits     waits
	sizing    sizing
	strangers strangers
}

// SetupWithManager starts the controllers with a manager: one for the sizes of a pool's
// parts, and one for all else, which a pool that is scaled need not wait for.
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
		Watches(&clusterv1.MachinePool{}, handler.EnqueueRequestsFromMapFunc(ofMachinePool), wanted()).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.ofMachine), wanted()).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.ofCluster), wanted()).
		WatchesRawSource(r.Shards.Source(r.index.ofEvent)).
		WatchesRawSource(r.Nodes.Source(&corev1.Node{}, r.index.ofNode, predicate.Funcs{UpdateFunc: nodeChanged})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, SkipNameValidation: new(true)}).
		Complete(r)
}

// wanted leaves out what others write into a status all the time.
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
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch;patch

// Reconcile brings one pool closer to what is wanted.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s, err := r.read(ctx, r.Client, req.NamespacedName)
	if apierrors.IsNotFound(err) {
		r.index.forget(req.NamespacedName)
		r.strangers.keep(req.NamespacedName, nil)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	r.index.note(s)
	switch {
	case s.paused:
		return ctrl.Result{}, r.writePaused(ctx, s)
	case !s.pool.DeletionTimestamp.IsZero():
		return again(ctrl.Result{}, r.delete(ctx, s))
	case s.owner == nil:
		return ctrl.Result{}, r.writeStatus(ctx, s, nil)
	}
	if err := r.ensureFinalizer(ctx, s.pool); err != nil {
		return again(ctrl.Result{}, err)
	}
	return r.keep(ctx, s)
}

// keep does every part of the work, whatever becomes of the others.
func (r *Reconciler) keep(ctx context.Context, s *scope) (ctrl.Result, error) {
	result := s.again
	machinesErr := r.keepMachines(ctx, s)
	listErr := r.keepList(ctx, s)
	if r.strangers.any(client.ObjectKeyFromObject(s.pool)) {
		result = sooner(result, ctrl.Result{RequeueAfter: r.Doubt})
	}
	nodes, nodesErr := r.keepNodes(ctx, s)
	var lost *nodesLostError
	if errors.As(nodesErr, &lost) {
		ctrl.LoggerFrom(ctx).V(1).Info("can't read nodes", "error", lost.err.Error())
		nodesErr = nil
		result = sooner(result, ctrl.Result{RequeueAfter: nodesAgain})
	}
	templateErr := r.keepTemplate(ctx, s)
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

// again joins errors. A conflict is none: soon the cache has what was written meanwhile.
// Nor is a moment in which the sizes are looked at.
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
