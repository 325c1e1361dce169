package ondemand

import (
	"context"
	"fmt"
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
)

// again is after how long is looked at what has to go and is still there.
const again = 3 * time.Second

// Workload is the cluster in which pods are.
type Workload interface {
	// Client reads nodes and the metadata of pods from a cache, and whole pods past it.
	Client() client.Client
	// Source feeds a controller with what happens to the objects of a kind.
	Source(o client.Object, requests handler.MapFunc, predicates ...predicate.Predicate) source.Source
}

// Reconciler keeps Machines for pods. Its fields are set once, before it is used; then
// it is safe for concurrent use.
type Reconciler struct {
	// Client is of the cluster in which Machines are.
	Client client.Client
	// Reader reads there past the cache.
	Reader   client.Reader
	Workload Workload
	// Recorder is of the workload cluster: its events are about pods.
	Recorder events.EventRecorder
	// Cluster is the Cluster that the Machines belong to.
	Cluster types.NamespacedName

	told   sync.Map // by pod: what was said of it last
	served sync.Map // the pods for which something was made
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,namespace=nstance,resources=clusters,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,namespace=nstance,resources=machines,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,namespace=nstance,resources=nstancemachines,verbs=list;watch;create;delete

// Reconcile sees to what one pod needs.
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
	if err := r.dropOthers(ctx, req.NamespacedName, pod, all); err != nil {
		return reconcile.Result{}, err
	}
	if pod == nil {
		r.told.Delete(req.NamespacedName)
		if len(all) > 0 { // each step of their end is told too; this is for one that is missed
			return reconcile.Result{RequeueAfter: again}, nil
		}
		return reconcile.Result{}, nil
	}
	if pod.DeletionTimestamp.IsZero() && cluster.DeletionTimestamp.IsZero() {
		err = r.serve(ctx, pod, all[pod.GetUID()])
	}
	return reconcile.Result{}, err
}

// dropOthers drops the claims of pods of the name that are gone. pod is what the cache has,
// which may be behind: of an operator that has just begun, by more than the one before it
// had seen. So it is the API server that says whose pod is gone.
func (r *Reconciler) dropOthers(
	ctx context.Context, key types.NamespacedName, pod *metav1.PartialObjectMetadata, all map[types.UID]claim,
) error {
	others := maps.Clone(all)
	if pod != nil {
		delete(others, pod.GetUID())
	}
	if len(others) == 0 {
		return nil
	}
	var now corev1.Pod // a whole one is read past the cache
	err := r.Workload.Client().Get(ctx, key, &now)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read pod %s: %w", key, err)
	}
	if err == nil {
		delete(others, now.UID)
	}
	for _, c := range others {
		if err := r.drop(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// serve makes what a pod asks for and lacks.
func (r *Reconciler) serve(ctx context.Context, pod *metav1.PartialObjectMetadata, c claim) error {
	a, ok := asks(pod)
	todo := c.next()
	if !ok || todo == nothing {
		return nil
	}
	if err := a.check(); err != nil {
		r.tell(pod, corev1.EventTypeWarning, "OnDemandRefused", err.Error())
		return nil
	}
	if todo == unmake {
		return r.unmake(ctx, c)
	}
	if waits, err := r.waits(ctx, pod); err != nil || !waits {
		return err
	}
	if todo == makeBoth || todo == makeInfrastructure {
		if err := r.make(ctx, infrastructure(pod, a, r.Cluster)); err != nil {
			return err
		}
	}
	if todo == makeBoth || todo == makeMachine {
		if err := r.make(ctx, machine(pod, a, r.Cluster)); err != nil {
			return err
		}
	}
	r.serves(client.ObjectKeyFromObject(pod), true)
	r.tell(pod, corev1.EventTypeNormal, "OnDemandRequested",
		fmt.Sprintf("an instance of group %s is asked for: Machine %s/%s", a.group, r.Cluster.Namespace, objectName(pod)))
	return nil
}

// serves notes whether there is something that has to go with a pod, be it that the pod
// does not ask any more.
func (r *Reconciler) serves(pod types.NamespacedName, something bool) {
	if something {
		r.served.Store(pod, nil)
	} else {
		r.served.Delete(pod)
	}
}

// make creates an object. One that is there already was made a moment ago.
func (r *Reconciler) make(ctx context.Context, o client.Object) error {
	err := r.Client.Create(ctx, o, capi.FieldOwner)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
	}
	return nil
}

// pod returns the metadata of a pod; nil: it is gone.
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

// waits reports whether an instance can be of use to a pod, as it is now.
func (r *Reconciler) waits(ctx context.Context, pod *metav1.PartialObjectMetadata) (bool, error) {
	c := r.Workload.Client()
	var now corev1.Pod
	if err := c.Get(ctx, client.ObjectKeyFromObject(pod), &now); err != nil {
		return false, client.IgnoreNotFound(err) // that it is gone comes as an event too
	}
	if now.UID != pod.UID || !now.DeletionTimestamp.IsZero() {
		return false, nil
	}
	there := true
	if now.Spec.NodeName != "" {
		err := c.Get(ctx, client.ObjectKey{Name: now.Spec.NodeName}, &corev1.Node{})
		if client.IgnoreNotFound(err) != nil {
			return false, err
		}
		there = err == nil
	}
	return !finished(&now, there), nil
}

// tell says something about a pod, unless it was said last.
func (r *Reconciler) tell(pod *metav1.PartialObjectMetadata, kind, reason, note string) {
	key := client.ObjectKeyFromObject(pod)
	if said, ok := r.told.Swap(key, string(pod.UID)+note); ok && said == string(pod.UID)+note {
		return
	}
	r.Recorder.Eventf(pod, nil, kind, reason, "Provision", "%s", note)
}
