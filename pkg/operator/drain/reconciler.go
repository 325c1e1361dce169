package drain

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nstance/nstance/pkg/operator/shards"
	"github.com/nstance/nstance/pkg/operator/workload"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	// drainsAtOnce bounds concurrent drains.
	drainsAtOnce = 16
	// acksAtOnce bounds concurrent acknowledgements to one shard, so that a slow shard leaves
	// most workers to the others.
	acksAtOnce = 4
	// lookTimeout bounds one pass over a node.
	lookTimeout = 20 * time.Second
	// clockSkew is how much earlier a shard may end a drain by its own clock.
	clockSkew = 5 * time.Second
)

// Shards is what the drain needs of the shards.
type Shards interface {
	State(shard string) (shards.State, bool)
	Instance(shard, id string) *nstancev1.InstanceStatus
	AcknowledgeDrained(ctx context.Context, shard, id string) error
	Source(requests func(shards.Event) []reconcile.Request) source.Source
}

// Reconciler empties the nodes of draining instances. A request's namespace is the shard and
// its name the instance.
type Reconciler struct {
	// Client reads Machines, NstanceMachines and MachineDrainRules.
	Client client.Client
	// Namespace is theirs.
	Namespace string
	Shards    Shards
	Workload  *workload.Cluster
	// Recorder records events of drains on Machines and NstanceMachines.
	Recorder events.EventRecorder
	Now      func() time.Time

	drains memory
	calls  shards.Limiter
	doubts *doubts
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := indexMachines(mgr); err != nil {
		return err
	}
	var err error
	if r.doubts, err = newDoubts(metrics.Registry); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("drain").
		WatchesRawSource(r.Shards.Source(requests)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: drainsAtOnce, SkipNameValidation: new(true),
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](shortest/4, longest),
		}).
		Complete(r)
}

func requests(e shards.Event) []reconcile.Request {
	if e.Of != shards.OfInstance {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: e.Shard, Name: e.Instance}}}
}

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines;machinedrainrules,namespace=nstance,verbs=list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=nstancemachines,namespace=nstance,verbs=list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=nstancemachines/status,namespace=nstance,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,namespace=nstance,verbs=create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups="",resources=namespaces;persistentvolumeclaims;persistentvolumes,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=list
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get

// Reconcile makes one pass over an instance's node and evicts the pods that can be evicted. It
// does not wait for pods.
func (r *Reconciler) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	i := r.Shards.Instance(q.Namespace, q.Name)
	if !draining(i) {
		return reconcile.Result{}, r.ended(ctx, q, i)
	}
	d := r.drains.of(q, r.Now())
	m, err := r.machinesOf(ctx, q)
	if err != nil {
		return reconcile.Result{}, err
	}
	v := nodeView{instance: i, identity: r.identityOf(ctx, d, i, m), machine: m.core, now: r.Now()}
	v.node, v.nodeErr = r.nodeOf(ctx, v.identity)
	if err := ctx.Err(); err != nil {
		return reconcile.Result{}, err // otherwise an interrupted read would count as unknown
	}
	v.justWent = v.nodeErr == nil && d.justWent(nameOf(v.node), len(v.identity.Seen) > 0, v.now)
	s := decide(v)
	r.doubts.note(d, s.act == ambiguous)
	if err := r.showNode(ctx, &m, v); err != nil {
		return reconcile.Result{}, err
	}
	return r.follow(ctx, q, d, v, m, s)
}

// follow does what was decided.
func (r *Reconciler) follow(ctx context.Context, q reconcile.Request, d *drain, v nodeView, m machines, s step) (reconcile.Result, error) {
	later := reconcile.Result{RequeueAfter: pause(v.instance, d.since, v.now)}
	switch s.act {
	case acknowledge:
		return r.acknowledge(ctx, q, d, v, s.why)
	case tooLate:
		r.late(ctx, d, v, m)
	case ambiguous:
		if r.held(ctx, d, reasonAmbiguous, s.why, &m) {
			r.recordOnNodes(ctx, v.nodeErr)
		}
		return later, nil
	case again:
		return later, nil
	case hold:
		r.held(ctx, d, reasonHeld, s.why, &m)
		return later, nil
	case empty:
		return r.empty(ctx, q, d, v, m)
	case leave:
	}
	return reconcile.Result{}, nil
}

// empty cordons the node and requests the evictions that are due.
func (r *Reconciler) empty(ctx context.Context, q reconcile.Request, d *drain, v nodeView, m machines) (reconcile.Result, error) {
	later := reconcile.Result{RequeueAfter: pause(v.instance, d.since, v.now)}
	clientset, err := r.Workload.Clientset()
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.cordon(ctx, v.node); apierrors.IsNotFound(err) {
		return later, nil // it is gone; the cache lags
	} else if err != nil {
		return reconcile.Result{}, err
	}
	rules, err := r.rulesOf(ctx, m.core)
	if err != nil {
		return reconcile.Result{}, err
	}
	h := helper(ctx, clientset, v.node)
	pods, err := podsOf(ctx, h, v.node, rules)
	if err != nil {
		return reconcile.Result{}, err
	}
	left := append(evict(h, pods.evict), pods.stay...)
	if len(pods.evict) > 0 || len(left) > 0 {
		d.emptyAt = time.Time{}
		d.observe(left, "")
		return later, r.blocked(ctx, d, v, &m, left)
	}
	return r.finish(ctx, q, d, v, m, clientset)
}

// finish acknowledges an empty node's drain, once its volumes are detached and no hook holds
// its end back.
func (r *Reconciler) finish(
	ctx context.Context, q reconcile.Request, d *drain, v nodeView, m machines, clientset kubernetes.Interface,
) (reconcile.Result, error) {
	later := reconcile.Result{RequeueAfter: pause(v.instance, d.since, v.now)}
	var left []leftover
	if waitsForVolumes(v.node, m.core, d.empty(v.now), v.now) {
		var err error
		if left, err = attached(ctx, clientset, v.node); err != nil {
			r.held(ctx, d, reasonHeld, "its volumes are unknown: "+err.Error(), &m)
			return later, ctx.Err()
		}
	}
	if hooks := preTerminateHooks(v); len(left) == 0 && len(hooks) > 0 {
		r.held(ctx, d, reasonHeld, heldBy("pre-terminate", hooks), &m)
		return later, nil
	}
	d.observe(left, "")
	if err := r.blocked(ctx, d, v, &m, left); err != nil || len(left) > 0 {
		return later, err
	}
	if is, err := r.still(ctx, v.identity, v.node); err != nil || !is {
		return later, unlessAmbiguous(err) // the next pass decides
	}
	return r.acknowledge(ctx, q, d, v, "its node is empty")
}

// acknowledge tells the shard that the node is empty. If the shard is unreachable or has
// enough calls open, it requeues instead of blocking a worker.
func (r *Reconciler) acknowledge(ctx context.Context, q reconcile.Request, d *drain, v nodeView, why string) (reconcile.Result, error) {
	d.observe(nil, "")
	later := reconcile.Result{RequeueAfter: pause(v.instance, d.since, v.now)}
	if state, _ := r.Shards.State(q.Namespace); !state.Reachable {
		return later, nil
	}
	busy, err := r.calls.Try(q.Namespace, acksAtOnce, func() error { return r.Shards.AcknowledgeDrained(ctx, q.Namespace, q.Name) })
	switch {
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("acknowledge the drain of %s: %w", q, err)
	case busy > 0:
		return later, nil // not sooner: a pass over a node has a cost
	}
	r.forget(q)
	log.FromContext(ctx).Info("drained", "why", why)
	return reconcile.Result{}, nil
}

// held records what holds a drain back and reports the first occurrence of the reason, in a
// condition and an event too.
func (r *Reconciler) held(ctx context.Context, d *drain, reason, why string, m *machines) (news bool) {
	if !d.observe(d.left, why) {
		return false
	}
	d.blocked = ""
	log.FromContext(ctx).Info("the drain is held back", "why", why)
	note := "The drain is held back: " + why
	if reason == reasonHeld { // what is ambiguous has a condition of its own
		if err := r.showBlocked(ctx, m, metav1.ConditionTrue, reason, short(note)); err != nil {
			log.FromContext(ctx).Error(err, "show why the drain is held back")
		}
	}
	r.recordEvent(*m, reason, note)
	return true
}

// ended drops a drain for which the shard no longer waits. Unless it completed or its machine
// went down before its deadline, time ran out.
func (r *Reconciler) ended(ctx context.Context, q reconcile.Request, i *nstancev1.InstanceStatus) error {
	d := r.drains.known(q)
	if d != nil && i != nil && i.GetDrain().GetAckedAt() == nil && past(i, r.Now().Add(clockSkew)) {
		m, err := r.machinesOf(ctx, q)
		if err != nil {
			return err // keep the drain: it is still to be reported
		}
		v := nodeView{instance: i, identity: r.identityOf(ctx, d, i, m), machine: m.core}
		v.node, v.nodeErr = r.nodeOf(ctx, v.identity)
		r.late(ctx, d, v, m)
	}
	r.forget(q)
	return nil
}

// forget drops a drain that is over.
func (r *Reconciler) forget(q reconcile.Request) {
	if d := r.drains.known(q); d != nil {
		r.doubts.note(d, false)
	}
	r.drains.forget(q)
}
