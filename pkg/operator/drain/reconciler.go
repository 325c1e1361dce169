package drain

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	kubedrain "k8s.io/kubectl/pkg/drain"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nstance/nstance/pkg/operator/shards"
	"github.com/nstance/nstance/pkg/operator/workload"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	// drainsAtOnce is how many nodes are looked at at the same time.
	drainsAtOnce = 16
	// lookTimeout bounds one look at a node.
	lookTimeout = 20 * time.Second
	// clockSkew is how much earlier a shard may end a drain by its own clock.
	clockSkew = 5 * time.Second
)

// Shards is what is asked of the shards.
type Shards interface {
	State(shard string) (shards.State, bool)
	Instance(shard, id string) *nstancev1.InstanceStatus
	AcknowledgeDrained(ctx context.Context, shard, id string) error
	Source(requests func(shards.Event) []reconcile.Request) source.Source
}

// Reconciler empties the nodes of instances that drain. A request's namespace is the
// shard and its name the instance.
type Reconciler struct {
	// Client reads Machines, NstanceMachines and MachineDrainRules.
	Client client.Client
	// Namespace is where they are.
	Namespace string
	Shards    Shards
	Workload  *workload.Cluster
	// Recorder tells of drains on Machines and NstanceMachines.
	Recorder events.EventRecorder
	Now      func() time.Time

	drains memory
	places places
}

// SetupWithManager has the manager run the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := indexMachines(mgr); err != nil {
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
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,namespace=nstance,verbs=create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get

// Reconcile takes one look at an instance's node and evicts what can be evicted. It
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
	v := view{instance: i, machine: m.core, now: r.Now()}
	v.node, v.nodeErr = r.nodeOf(ctx, i)
	if err := ctx.Err(); err != nil {
		return reconcile.Result{}, err // or else what was cut short would count as not known
	}
	s := decide(v)
	switch s.act {
	case acknowledge:
		return r.acknowledge(ctx, q, d, v, s.why)
	case tooLate:
		r.late(ctx, d, v, m)
	case hold:
		r.held(ctx, d, s.why, m)
		return reconcile.Result{RequeueAfter: pause(i, d.since, v.now)}, nil
	case empty:
		return r.empty(ctx, q, d, v, m)
	case leave:
	}
	return reconcile.Result{}, nil
}

// empty cordons the node and asks for the evictions that are due.
func (r *Reconciler) empty(ctx context.Context, q reconcile.Request, d *drain, v view, m machines) (reconcile.Result, error) {
	clientset, err := r.Workload.Clientset()
	if err != nil {
		return reconcile.Result{}, err
	}
	h := helper(ctx, clientset, v.node)
	if err := kubedrain.RunCordonOrUncordon(h, v.node, true); apierrors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: pause(v.instance, d.since, v.now)}, nil // it went, and the cache will know
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("cordon node %s: %w", v.node.Name, err)
	}
	rules, err := r.rulesOf(ctx, m.core)
	if err != nil {
		return reconcile.Result{}, err
	}
	pods, err := podsOf(ctx, h, v.node, rules)
	if err != nil {
		return reconcile.Result{}, err
	}
	left := append(evict(h, pods.evict), pods.stay...)
	d.look(left, "")
	if len(pods.evict) == 0 && len(left) == 0 {
		return r.acknowledge(ctx, q, d, v, "its node is empty")
	}
	return reconcile.Result{RequeueAfter: pause(v.instance, d.since, v.now)}, nil
}

// acknowledge tells the shard that nothing is left. It comes back to one that would
// only have a worker wait for it: one that is not reachable, or has enough of them wait.
func (r *Reconciler) acknowledge(ctx context.Context, q reconcile.Request, d *drain, v view, why string) (reconcile.Result, error) {
	d.look(nil, "")
	if state, _ := r.Shards.State(q.Namespace); !state.Reachable || !r.places.take(q.Namespace) {
		return reconcile.Result{RequeueAfter: pause(v.instance, d.since, v.now)}, nil
	}
	defer r.places.free(q.Namespace)
	if err := r.Shards.AcknowledgeDrained(ctx, q.Namespace, q.Name); err != nil {
		return reconcile.Result{}, fmt.Errorf("acknowledge the drain of %s: %w", q, err)
	}
	r.drains.forget(q)
	log.FromContext(ctx).Info("drained", "why", why)
	return reconcile.Result{}, nil
}

// held remembers what holds a drain back, and says it the first time.
func (r *Reconciler) held(ctx context.Context, d *drain, why string, m machines) {
	if !d.look(d.left, why) {
		return
	}
	log.FromContext(ctx).Info("the drain is held back", "why", why)
	r.tell(m, reasonHeld, "The drain is held back: "+why)
}

// ended closes the books on a drain that the shard does not wait for any more. If it is
// not done and did not end before its time, as it does with its machine, time ran out.
func (r *Reconciler) ended(ctx context.Context, q reconcile.Request, i *nstancev1.InstanceStatus) error {
	d := r.drains.known(q)
	if d != nil && i != nil && i.GetDrain().GetAckedAt() == nil && past(i, r.Now().Add(clockSkew)) {
		m, err := r.machinesOf(ctx, q)
		if err != nil {
			return err // and what is known of the drain is still to be told
		}
		v := view{instance: i, machine: m.core}
		v.node, v.nodeErr = r.nodeOf(ctx, i)
		r.late(ctx, d, v, m)
	}
	r.drains.forget(q)
	return nil
}
