package ondemand

import (
	"context"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/shards"
	"github.com/nstance/nstance/pkg/operator/workload"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	// again is the requeue delay while objects are being deleted, or a shard is only beginning
	// to report its state.
	again = 3 * time.Second
	// refusedPause is the requeue delay of a refused pod, and of one whose machine's Node is
	// ambiguous: a group, a Namespace, the number of instances or a Node may have changed.
	refusedPause = 30 * time.Second
	// heldPause is that of a held pod, whose changes are watched.
	heldPause = 5 * time.Minute
	// othersPause is that of a pod that another tenant's operator serves.
	othersPause = 10 * time.Minute
)

// Workload is the cluster with the pods.
type Workload interface {
	// NodesWith returns the cached Nodes with a machine's provider ID or one of its names.
	NodesWith(ctx context.Context, machine workload.Identity) ([]corev1.Node, error)
	// Client reads nodes and the metadata of pods from a cache, and full pods uncached.
	Client() client.Client
	// Reader reads uncached.
	Reader() client.Reader
	// Source returns a watch source for the objects of a kind.
	Source(o client.Object, requests handler.MapFunc, predicates ...predicate.Predicate) source.Source
}

// Shards is what the controller needs of the shards.
type Shards interface {
	Names() []string
	State(shard string) (shards.State, bool)
	Group(shard, group string) *nstancev1.GroupStatus
	Instances(shard, group string) []*nstancev1.InstanceStatus
}

var _ Shards = (*shards.Set)(nil)

// Reconciler maintains Machines for pods. Its fields must not change after the start; then it
// is safe for concurrent use.
type Reconciler struct {
	// Client accesses the cluster with the Machines.
	Client client.Client
	// Reader reads that uncached.
	Reader   client.Reader
	Workload Workload
	Shards   Shards
	// Tenant is the operator's: it serves the pods of Namespaces with that label.
	Tenant string
	Now    func() time.Time
	// Random is the source of idempotency keys.
	Random io.Reader
	// Recorder records events of pods, in the workload cluster.
	Recorder events.EventRecorder
	// Cluster is the Cluster of the Machines.
	Cluster types.NamespacedName

	told   sync.Map // by pod: its last event
	served sync.Map // pods that have objects
	holds  sync.Map // pods that are held and have a request
	looks  looks
	slots  slots
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims;persistentvolumes,verbs=get
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,namespace=nstance,resources=clusters,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,namespace=nstance,resources=machines,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,namespace=nstance,resources=nstancemachines,verbs=get;list;watch;create;patch;delete

// Reconcile serves one pod.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var cluster clusterv1.Cluster
	err := r.Client.Get(ctx, r.Cluster, &cluster)
	if err != nil || capi.Paused(&cluster, &cluster) {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	pod, err := r.pod(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	all, err := r.claims(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.serves(req.NamespacedName, len(all) > 0)
	after, err := r.dropOthers(ctx, req.NamespacedName, pod, all)
	if err != nil {
		return reconcile.Result{}, err
	}
	if pod == nil {
		r.forget(req.NamespacedName)
		if len(all) > 0 { // in case a deletion event is missed
			return reconcile.Result{RequeueAfter: again}, nil
		}
		return reconcile.Result{}, nil
	}
	r.slots.free(req.NamespacedName, pod.UID)
	if !pod.DeletionTimestamp.IsZero() || !cluster.DeletionTimestamp.IsZero() {
		return reconcile.Result{RequeueAfter: after}, nil
	}
	own, err := r.attend(ctx, pod, all[pod.GetUID()])
	return reconcile.Result{RequeueAfter: sooner(after, own)}, err
}

// sooner returns the shorter requeue delay; zero is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// dropOthers drops the claims of the name's pods that are gone. pod is from the cache, which
// may be stale: on a new operator even older than what its predecessor saw. So the API server
// decides which pods are gone.
func (r *Reconciler) dropOthers(
	ctx context.Context, key types.NamespacedName, pod *metav1.PartialObjectMetadata, all map[types.UID][]claim,
) (after time.Duration, err error) {
	others := maps.Clone(all)
	if pod != nil {
		delete(others, pod.GetUID())
	}
	if len(others) == 0 {
		return 0, nil
	}
	var now corev1.Pod // a full object is read uncached
	err = r.Workload.Client().Get(ctx, key, &now)
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("read pod %s: %w", key, err)
	}
	if err == nil {
		delete(others, now.UID)
	}
	for _, of := range others {
		for _, c := range of {
			later, err := r.reclaim(ctx, c, true)
			if err != nil {
				return 0, err
			}
			after = sooner(after, later)
		}
	}
	return after, nil
}

// pod returns a pod's metadata; nil if it is gone.
func (r *Reconciler) pod(ctx context.Context, key types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	pod := podMeta()
	err := r.Workload.Client().Get(ctx, key, pod)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // documented
	}
	if err != nil {
		return nil, fmt.Errorf("read pod %s: %w", key, err)
	}
	return pod, nil
}

func podMeta() *metav1.PartialObjectMetadata {
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return pod
}

// recordEvent records an event of a pod, unless it equals the last one.
func (r *Reconciler) recordEvent(pod *metav1.PartialObjectMetadata, kind, reason, note string) {
	key := client.ObjectKeyFromObject(pod)
	if said, ok := r.told.Swap(key, string(pod.UID)+note); ok && said == string(pod.UID)+note {
		return
	}
	r.Recorder.Eventf(pod, nil, kind, reason, "Provision", "%.1000s", note)
}
