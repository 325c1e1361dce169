package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
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

// Shards are the shards of the operator's configuration.
type Shards interface {
	Names() []string
	State(shard string) (shards.State, bool)
	Source(func(shards.Event) []reconcile.Request) source.Source
}

// Reconciler maintains the Cluster and its own objects. All fields are required unless noted,
// and must not change after the start.
type Reconciler struct {
	// Client reads Secrets uncached.
	Client client.Client
	// Reader reads uncached.
	Reader client.Reader
	// Config is the operator's access to its API server; its host and CA go into the
	// kubeconfig.
	Config *rest.Config
	Shards Shards
	Now    func() time.Time

	// Namespace and Name identify the Cluster.
	Namespace, Name string
	// Endpoint is the workload cluster's API server, if an administrator sets it. The
	// kubeconfig Secret is then the administrator's too. Optional.
	Endpoint string
	// ServiceAccount is the account whose tokens the kubeconfig holds.
	ServiceAccount string
	// Lifetime is the requested lifetime of a token. The API server refuses less than ten
	// minutes.
	Lifetime time.Duration

	at clusterv1.APIEndpoint
	// seen: there has been a Cluster since the operator started. If it is gone, it was deleted
	// on purpose and is not created again.
	seen   bool
	told   bool // that it is not created again
	issued issue
}

// Check validates the settings.
func (r *Reconciler) Check() error {
	var err error
	r.at, err = r.endpoint()
	return err
}

// SetupWithManager checks the settings and registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := r.Check(); err != nil {
		return err
	}
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return r.requests() })
	named := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == r.Namespace && (o.GetName() == r.Name || o.GetName() == capi.KubeconfigName(r.Name))
	}))
	gone := builder.WithPredicates(predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("cluster").
		WithOptions(controller.Options{SkipNameValidation: new(true)}).
		Watches(&clusterv1.Cluster{}, one, named).
		Watches(&v1beta1.NstanceCluster{}, one, named).
		Watches(&v1beta1.NstanceControlPlane{}, one, named).
		// Other applications' Secrets are in this namespace too: only metadata is cached.
		Watches(&corev1.Secret{}, one, named, builder.OnlyMetadata).
		Watches(&v1beta1.NstanceMachinePool{}, one, gone).
		Watches(&v1beta1.NstanceMachine{}, one, gone).
		WatchesRawSource(r.Shards.Source(func(e shards.Event) []reconcile.Request {
			if e.Of != shards.OfShard {
				return nil
			}
			return r.requests()
		})).
		// Enqueue a first request, for when no object exists yet.
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			for _, request := range r.requests() {
				q.Add(request)
			}
			return nil
		})).
		Complete(r)
}

func (r *Reconciler) requests() []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: r.Name}}}
}

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,namespace=nstance,verbs=list;watch;create;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=nstanceclusters;nstancecontrolplanes,namespace=nstance,verbs=list;watch;create;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=nstanceclusters/status;nstancecontrolplanes/status,namespace=nstance,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=nstancemachinepools;nstancemachines,namespace=nstance,verbs=list;watch
// The kubeconfig's Secret is named after the cluster, so it has a Role of its own, in which
// the name can be changed.
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=example-cluster--default-kubeconfig,namespace=nstance,roleName=nstance-operator-kubeconfig,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets,namespace=nstance,verbs=create
// +kubebuilder:rbac:groups="",resources=serviceaccounts/token,resourceNames=nstance-capi-workload,namespace=nstance,verbs=create

// conflictPause is the requeue delay after a write conflict.
const conflictPause = 100 * time.Millisecond

// Reconcile ensures the Cluster and its own objects. The request is always the same. A conflict
// is not an error: the cache is stale, and soon has the newer object.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	result, err := r.pass(ctx)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictPause}, nil
	}
	return result, err
}

// pass makes one pass over all of it.
func (r *Reconciler) pass(ctx context.Context) (ctrl.Result, error) {
	s, err := r.read(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if s.cluster != nil {
		r.seen = true
	}
	switch {
	case s.paused():
		return r.hold(ctx, s)
	case s.cluster == nil && r.seen, s.cluster != nil && !s.cluster.DeletionTimestamp.IsZero():
		return r.letGo(ctx, s)
	}
	if err := r.ensure(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	wait, unknown := r.kubeconfig(ctx, s)
	err = errors.Join(unknown, r.infrastructure(ctx, s), r.controlPlane(ctx, s, unknown))
	return ctrl.Result{RequeueAfter: wait}, err
}

// hold handles a paused Cluster, for example during a move: it sets the condition, and renews
// the token that is in use.
func (r *Reconciler) hold(ctx context.Context, s *state) (ctrl.Result, error) {
	var wait time.Duration
	var err error
	if s.secret != nil {
		wait, err = r.kubeconfig(ctx, s)
	}
	if s.infra != nil {
		was := s.infra.DeepCopy()
		r.set(&s.infra.Status.Conditions, s.infra.Generation, pausedCondition(true))
		err = errors.Join(err, r.patchStatus(ctx, was, s.infra))
	}
	if s.control != nil {
		was := s.control.DeepCopy()
		r.set(&s.control.Status.Conditions, s.control.Generation, pausedCondition(true))
		err = errors.Join(err, r.patchStatus(ctx, was, s.control))
	}
	return ctrl.Result{RequeueAfter: wait}, err
}

// state holds the objects of the Cluster; nil if missing.
type state struct {
	cluster *clusterv1.Cluster
	infra   *v1beta1.NstanceCluster
	control *v1beta1.NstanceControlPlane
	secret  *corev1.Secret
}

func (s *state) paused() bool {
	switch {
	case s.cluster != nil && capi.Paused(s.cluster, s.cluster):
	case s.infra != nil && capi.Paused(nil, s.infra):
	case s.control != nil && capi.Paused(nil, s.control):
	default:
		return false
	}
	return true
}

func (r *Reconciler) read(ctx context.Context) (*state, error) {
	s := &state{
		cluster: &clusterv1.Cluster{}, infra: &v1beta1.NstanceCluster{}, control: &v1beta1.NstanceControlPlane{}, secret: &corev1.Secret{},
	}
	for _, get := range []struct {
		name string
		into client.Object
		none func()
	}{
		{r.Name, s.cluster, func() { s.cluster = nil }},
		{r.Name, s.infra, func() { s.infra = nil }},
		{r.Name, s.control, func() { s.control = nil }},
		{capi.KubeconfigName(r.Name), s.secret, func() { s.secret = nil }},
	} {
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: get.name}, get.into)
		switch {
		case apierrors.IsNotFound(err):
			get.none()
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", get.name, err)
		}
	}
	return s, nil
}
