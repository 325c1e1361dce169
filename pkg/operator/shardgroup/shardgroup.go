// Package shardgroup reconciles NstanceShardGroups: it changes a group on its shard to the
// spec, and reports the group in the status.
package shardgroup

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/shards"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Shards is what the controller needs of the shards. *shards.Set implements it.
type Shards interface {
	Names() []string
	State(shard string) (shards.State, bool)
	Group(shard, group string) *nstancev1.GroupStatus
	Instance(shard, id string) *nstancev1.InstanceStatus
	// Instances returns the known instances of a group.
	Instances(shard, group string) []*nstancev1.InstanceStatus
	// Missing reports whether the instance certainly does not exist.
	Missing(shard, group, id string) bool
	UpsertGroup(ctx context.Context, shard string, r *nstancev1.UpsertGroupRequest) (*nstancev1.UpsertGroupResponse, error)
	DeleteGroup(ctx context.Context, shard, group, manager string) error
	Source(requests func(shards.Event) []reconcile.Request) source.Source
}

var _ Shards = (*shards.Set)(nil)

// Reconciler reconciles NstanceShardGroups. The shards must have been configured before it
// starts: the object of an unconfigured shard is released without deleting the group.
type Reconciler struct {
	Client client.Client
	// Reader reads uncached.
	Reader   client.Reader
	Shards   Shards
	Recorder events.EventRecorder
	Now      func() time.Time

	// Namespace and Cluster, the name of the Cluster, select our objects.
	Namespace, Cluster string
	// SelfHosted: the operator runs in the cluster of these machines, so deleting the Cluster
	// deletes no group.
	SelfHosted bool

	calls  shards.Limiter
	memory *memory
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=nstanceshardgroups,verbs=get;list;watch;patch,namespace=nstance
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=nstanceshardgroups/status,verbs=patch,namespace=nstance
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch,namespace=nstance
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=nstance

// Reconcile implements reconcile.Reconciler. It waits for few answers of one shard at a time.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	x := &one{Reconciler: r, req: req}
	if err := r.Client.Get(ctx, req.NamespacedName, &x.object); err != nil {
		if apierrors.IsNotFound(err) {
			r.memory.forget(req)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !r.ours(&x.object) {
		return ctrl.Result{}, nil
	}
	if r.memory.unseen(req, &x.object, r.Now()) {
		return ctrl.Result{RequeueAfter: time.Second}, nil // normally an event comes first
	}
	cluster, err := capi.Cluster(ctx, r.Client, &x.object)
	if err != nil {
		return ctrl.Result{}, err
	}
	x.detached = r.SelfHosted && capi.Leaving(cluster)
	result, err := x.reconcile(ctx, capi.Paused(cluster, &x.object))
	if apierrors.IsConflict(err) { // the cache is stale; an event follows
		return ctrl.Result{RequeueAfter: firstPause}, nil
	}
	return result, err
}

// ours reports whether this operator handles an object. An object that has our finalizer must
// be released in any case.
func (r *Reconciler) ours(o *v1beta1.NstanceShardGroup) bool {
	if o.Namespace != r.Namespace {
		return false
	}
	return o.Labels[clusterv1.ClusterNameLabel] == r.Cluster ||
		!o.DeletionTimestamp.IsZero() && controllerutil.ContainsFinalizer(o, v1beta1.Finalizer)
}

// one is one reconciliation of an object.
type one struct {
	*Reconciler

	req      ctrl.Request
	object   v1beta1.NstanceShardGroup
	detached bool
}

func (x *one) shard() string { return string(x.object.Spec.Shard) }
func (x *one) group() string { return string(x.object.Spec.Group) }

func (x *one) reconcile(ctx context.Context, paused bool) (ctrl.Result, error) {
	switch {
	case paused:
		return ctrl.Result{}, x.show(ctx, pausedStatus(&x.object))
	case x.object.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(&x.object, v1beta1.Finalizer):
		if err := x.change(ctx, func(o client.Object) { controllerutil.AddFinalizer(o, v1beta1.Finalizer) }); err != nil {
			return ctrl.Result{}, err
		}
	}
	return x.sync(ctx)
}

// sync makes the shard's group what the object wants, and shows the result.
func (x *one) sync(ctx context.Context) (ctrl.Result, error) {
	if !x.object.DeletionTimestamp.IsZero() {
		return x.release(ctx)
	}
	return x.push(ctx)
}
