package machine

import (
	"context"
	"io"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/shards"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Shards is what the controller needs of the shards.
type Shards interface {
	Groups
	// Instance returns an instance created by CreateInstance as soon as that has returned.
	Instance(shard, id string) *nstancev1.InstanceStatus
	Instances(shard, group string) []*nstancev1.InstanceStatus
	// Missing reports whether the instance certainly does not exist. If it finds out only
	// later, an event follows.
	Missing(shard, group, id string) bool
	CreateInstance(ctx context.Context, shard string, r *nstancev1.CreateInstanceRequest) (*nstancev1.InstanceStatus, error)
	DeleteInstance(ctx context.Context, shard, id string) error
	DeleteInstanceByKey(ctx context.Context, shard, key string) error
}

// Pods chooses the shard of an instance that is for a pod.
type Pods interface {
	// Place returns the shard on which to try again what its own failed to create; empty if
	// there is none. It may be the same.
	Place(ctx context.Context, m *v1beta1.NstanceMachine) (shard string, err error)
}

// Groups is the part of Shards about groups.
type Groups interface {
	Names() []string
	State(shard string) (shards.State, bool)
	Group(shard, group string) *nstancev1.GroupStatus
	Source(requests func(shards.Event) []reconcile.Request) source.Source
}

var _ Shards = (*shards.Set)(nil)

const (
	// soon is the retry delay after a write conflict.
	soon = 50 * time.Millisecond
	// later is the requeue delay for something that an event should also announce.
	later = 5 * time.Second
	// slowly is the retry delay after a shard's refusal.
	slowly = 2 * time.Minute
)

// Reconciler reconciles NstanceMachines. Its fields must not change after the start; then it
// is safe for concurrent use.
type Reconciler struct {
	Client client.Client
	// Reader reads uncached.
	Reader client.Reader
	Shards Shards
	// Recorder records events of objects.
	Recorder events.EventRecorder
	// Random is the source of idempotency keys.
	Random io.Reader
	// Jitter returns numbers in [0, 1), by which waits after failed creations differ.
	Jitter func() float64
	// Pods chooses shards for the instances of pods.
	Pods Pods
	Now  func() time.Time
	// SelfHosted: the Cluster is the one that the operator runs on. When it is deleted,
	// instances of pools stay.
	SelfHosted bool

	places   places
	asks     asks
	versions versions
	calls    shards.Limiter
}

// scope is the input of all decisions about one NstanceMachine.
type scope struct {
	machine  *v1beta1.NstanceMachine
	owner    *clusterv1.Machine // nil: none known
	cluster  *clusterv1.Cluster // nil: there is none
	group    *nstancev1.GroupStatus
	instance *nstancev1.InstanceStatus // as its shard last reported it; nil: unknown
	// configured: spec.shard names a configured shard, and state is that shard's.
	configured bool
	state      shards.State
	// absent: the shard has said that the instance does not exist.
	absent bool
	// keyed: of the instance to delete, only the idempotency key is certain.
	keyed bool
}

// pooled reports whether the instance belongs to a pool.
func (s *scope) pooled() bool { return s.machine.Labels[clusterv1.MachinePoolNameLabel] != "" }

// stepResult is the result of a step of a pass.
type stepResult struct {
	// reason and message are for Ready, if not determined by the instance itself.
	reason, message string
	// unreachable: the shard did not answer.
	unreachable bool
	// busy: the shard has too many open calls, so the call was not made.
	busy bool
	// terminating is the reason for Terminating if the removal was just requested.
	terminating string
	// creation is the failed creation, if it was just found out.
	creation *v1beta1.Creation
	// again is the requeue delay; zero: wait for an event.
	again time.Duration
	// err is retried with back-off.
	err error
}

// stopped reports whether the following steps can't proceed.
func (o stepResult) stopped() bool { return o.reason != "" || o.err != nil || o.busy }

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,namespace=nstance,resources=nstancemachines,verbs=list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,namespace=nstance,resources=nstancemachines/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,namespace=nstance,resources=nstanceshardgroups,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,namespace=nstance,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,namespace=nstance,resources=machines,verbs=list;watch;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,namespace=nstance,resources=events,verbs=create;patch

// Reconcile makes one pass over a NstanceMachine.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var m v1beta1.NstanceMachine
	if err := r.Client.Get(ctx, req.NamespacedName, &m); err != nil {
		if apierrors.IsNotFound(err) {
			r.asks.forget(req.NamespacedName)
			r.versions.forget(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if r.versions.stale(&m) {
		return reconcile.Result{RequeueAfter: later}, nil // an event brings the version written last
	}
	s, err := r.read(ctx, &m)
	if err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case capi.Paused(s.cluster, &m):
		err = r.show(ctx, &m, paused(m.Status, m.Generation, r.Now()))
		return reconcileResult(stepResult{err: err})
	case !m.DeletionTimestamp.IsZero():
		return reconcileResult(r.remove(ctx, s))
	default:
		return reconcileResult(r.advance(ctx, s))
	}
}

// advance runs the steps of a NstanceMachine that is not being deleted.
func (r *Reconciler) advance(ctx context.Context, s *scope) stepResult {
	var o stepResult
	for _, step := range []func(context.Context, *scope) stepResult{r.place, r.create, r.identify, r.replace} {
		if o = step(ctx, s); o.stopped() || o.terminating != "" {
			break
		}
	}
	if ignorable(s, o) {
		return o
	}
	now := r.Now()
	if err := r.show(ctx, s.machine, observe(s, o, now)); err != nil {
		return stepResult{err: err}
	}
	if _, left := s.state.Silent(now); left > 0 && (o.again == 0 || left < o.again) {
		o.again = left // to report an unreachable shard
	}
	if !o.stopped() && gone(s) && !unmade(s) {
		o.err = r.deleteMachine(ctx, s)
	}
	return o
}

// ignorable reports whether there is nothing to show yet: the object is about to get a Machine
// or an instance.
func ignorable(s *scope, o stepResult) bool {
	return o.reason == reasonNoMachine && (len(s.machine.OwnerReferences) > 0 || o.again > 0) ||
		o.err != nil && o.reason == "" || o.busy && s.machine.Spec.InstanceID == ""
}

// noMachine is the result while no Machine refers to the object. The Machine of a pod's instance
// is created right after it, so for a moment that is not worth a write.
func (r *Reconciler) noMachine(m *v1beta1.NstanceMachine) stepResult {
	o := stepResult{reason: reasonNoMachine, message: "no Machine refers to this NstanceMachine yet"}
	if left := m.CreationTimestamp.Add(later).Sub(r.Now()); left > 0 && m.Labels[v1beta1.LabelPodUID] != "" {
		o.again = left
	}
	return o
}

// read gathers the scope of a NstanceMachine.
func (r *Reconciler) read(ctx context.Context, m *v1beta1.NstanceMachine) (*scope, error) {
	s := &scope{machine: m}
	var err error
	if s.owner, err = r.owner(ctx, m); err != nil {
		return nil, err
	}
	if s.cluster, err = capi.Cluster(ctx, r.Client, m); err != nil {
		return nil, err
	}
	if s.cluster == nil && s.owner != nil {
		if s.cluster, err = r.clusterOf(ctx, s.owner); err != nil {
			return nil, err
		}
	}
	r.readShard(s)
	return s, nil
}

// readShard reads the shard's state, as far as spec names shard and instance.
func (r *Reconciler) readShard(s *scope) {
	shard, id := string(s.machine.Spec.Shard), string(s.machine.Spec.InstanceID)
	if shard == "" {
		return
	}
	if s.state, s.configured = r.Shards.State(shard); !s.configured {
		return
	}
	s.group = r.Shards.Group(shard, string(s.machine.Spec.Group))
	if id == "" {
		return
	}
	s.instance = r.Shards.Instance(shard, id)
	s.absent = s.instance == nil && r.Shards.Missing(shard, string(s.machine.Spec.Group), id)
}

// owner returns the Machine that the object belongs to: the one that its owner reference
// names, or, before Cluster API has set that, one of its name that refers to it; nil if there
// is none.
func (r *Reconciler) owner(ctx context.Context, m *v1beta1.NstanceMachine) (*clusterv1.Machine, error) {
	owner, err := capi.OwnerMachine(ctx, r.Client, m)
	switch {
	case owner != nil && !names(m, owner.UID):
		return nil, nil //nolint:nilnil // documented; another Machine of its name, which may have another instance
	case owner != nil || err != nil || len(m.OwnerReferences) > 0:
		return owner, err
	}
	return capi.MachineFor(ctx, r.Client, m, v1beta1.MachineKind())
}

func names(m *v1beta1.NstanceMachine, uid types.UID) bool {
	return slices.ContainsFunc(m.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == uid })
}

func (r *Reconciler) clusterOf(ctx context.Context, m *clusterv1.Machine) (*clusterv1.Cluster, error) {
	var c clusterv1.Cluster
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}, &c)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return &c, nil
}

// reconcileResult converts a stepResult. A write conflict is not an error: the pass is
// repeated on the new state.
func reconcileResult(o stepResult) (reconcile.Result, error) {
	switch {
	case apierrors.IsConflict(o.err):
		return reconcile.Result{RequeueAfter: soon}, nil
	case o.err != nil:
		return reconcile.Result{}, o.err
	}
	return reconcile.Result{RequeueAfter: o.again}, nil
}
