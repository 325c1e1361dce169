// Package shardgroup keeps one group of one shard as an NstanceShardGroup wants it, and
// shows in its status what is there.
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

// Shards is what is needed of the shards. *shards.Set is one.
type Shards interface {
	Names() []string
	State(shard string) (shards.State, bool)
	Group(shard, group string) *nstancev1.GroupStatus
	Instance(shard, id string) *nstancev1.InstanceStatus
	// Missing reports whether there certainly is none.
	Missing(shard, group, id string) bool
	UpsertGroup(ctx context.Context, shard string, r *nstancev1.UpsertGroupRequest) (*nstancev1.UpsertGroupResponse, error)
	DeleteGroup(ctx context.Context, shard, group string) error
	Source(requests func(shards.Event) []reconcile.Request) source.Source
}

var _ Shards = (*shards.Set)(nil)

// Reconciler reconciles NstanceShardGroups. The shards must have been configured before
// it is started: the group of a shard that is not configured is let go when it is
// deleted.
type Reconciler struct {
	Client client.Client
	// Reader reads past the cache.
	Reader   client.Reader
	Shards   Shards
	Recorder events.EventRecorder
	Now      func() time.Time

	// Namespace and Cluster, the name of a CAPI Cluster, say which objects are ours.
	Namespace, Cluster string
	// SelfHosted: the operator runs in the cluster whose machines these are, so that
	// deleting the CAPI Cluster deletes no group.
	SelfHosted bool

	calls  *calls
	looks  *looks
	memory *memory
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=nstanceshardgroups,verbs=get;list;watch;patch,namespace=nstance
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=nstanceshardgroups/status,verbs=patch,namespace=nstance
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=list;watch,namespace=nstance
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=nstance

// Reconcile implements reconcile.Reconciler. It never waits for a shard.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	made, underWay := r.calls.take(req)
	if underWay {
		return ctrl.Result{}, nil // its end brings this request back
	}
	if made != nil {
		r.memory.keep(req, *made, r.Now())
	}
	seen, underWay := r.looks.take(req)
	if underWay {
		return ctrl.Result{}, nil // the same
	}
	x := &one{Reconciler: r, req: req, seen: seen}
	if err := r.Client.Get(ctx, req.NamespacedName, &x.object); err != nil {
		if apierrors.IsNotFound(err) {
			r.memory.forget(req)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	defer r.calls.wake(x.shard())
	if !r.ours(&x.object) {
		return ctrl.Result{}, nil
	}
	cluster, err := capi.Cluster(ctx, r.Client, &x.object)
	if err != nil {
		return ctrl.Result{}, err
	}
	x.detached = r.SelfHosted && (cluster == nil || !cluster.DeletionTimestamp.IsZero())
	result, err := x.reconcile(ctx, capi.Paused(cluster, &x.object))
	if apierrors.IsConflict(err) { // the cache is behind, and will be heard of
		return ctrl.Result{RequeueAfter: firstPause}, nil
	}
	return result, err
}

// ours reports whether an object is this operator's. One that was, and holds our
// finalizer, must be let go all the same.
func (r *Reconciler) ours(o *v1beta1.NstanceShardGroup) bool {
	if o.Namespace != r.Namespace {
		return false
	}
	return o.Labels[clusterv1.ClusterNameLabel] == r.Cluster ||
		!o.DeletionTimestamp.IsZero() && controllerutil.ContainsFinalizer(o, v1beta1.Finalizer)
}

// one is a reconciliation of one object.
type one struct {
	*Reconciler

	req      ctrl.Request
	seen     *look // past the cache, before; nil: there was none
	object   v1beta1.NstanceShardGroup
	detached bool
}

func (x *one) shard() string { return string(x.object.Spec.Shard) }
func (x *one) group() string { return string(x.object.Spec.Group) }

func (x *one) reconcile(ctx context.Context, paused bool) (ctrl.Result, error) {
	switch {
	case paused:
		return ctrl.Result{}, x.show(ctx, pausedStatus(&x.object))
	case !x.object.DeletionTimestamp.IsZero():
		return x.release(ctx)
	case !controllerutil.ContainsFinalizer(&x.object, v1beta1.Finalizer):
		if err := x.change(ctx, func(o client.Object) { controllerutil.AddFinalizer(o, v1beta1.Finalizer) }); err != nil {
			return ctrl.Result{}, err
		}
	}
	return x.push(ctx)
}
