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

// Shards is what is needed of all shards.
type Shards interface {
	Groups
	// Instance shows what CreateInstance made from its answer on.
	Instance(shard, id string) *nstancev1.InstanceStatus
	Instances(shard, group string) []*nstancev1.InstanceStatus
	// Missing reports whether there certainly is none. It may know that only later, and
	// tells that by an event.
	Missing(shard, group, id string) bool
	CreateInstance(ctx context.Context, shard string, r *nstancev1.CreateInstanceRequest) (*nstancev1.InstanceStatus, error)
	DeleteInstance(ctx context.Context, shard, id string) error
	DeleteInstanceByKey(ctx context.Context, shard, key string) error
}

// Groups is the part of it that tells of groups.
type Groups interface {
	Names() []string
	State(shard string) (shards.State, bool)
	Group(shard, group string) *nstancev1.GroupStatus
	Source(requests func(shards.Event) []reconcile.Request) source.Source
}

var _ Shards = (*shards.Set)(nil)

const (
	// soon is after how long an object is read again that somebody else wrote just now.
	soon = 50 * time.Millisecond
	// later is after how long is looked again for what an event should have told.
	later = 5 * time.Second
	// slowly is after how long a shard is asked again for what it refused.
	slowly = 2 * time.Minute
)

// Reconciler keeps NstanceMachines. Its fields are set once, before it is used; then it
// is safe for concurrent use.
type Reconciler struct {
	Client client.Client
	// Reader reads past the cache.
	Reader client.Reader
	Shards Shards
	// Recorder is told what people should know of an object.
	Recorder events.EventRecorder
	// Random is where idempotency keys come from.
	Random io.Reader
	Now    func() time.Time
	// SelfHosted: the Cluster stands for the one that the operator runs on. When it is
	// deleted, instances of pools stay.
	SelfHosted bool

	places places
	asks   asks
	lines  lines
}

// scope is all that a decision about one NstanceMachine can rest on.
type scope struct {
	machine  *v1beta1.NstanceMachine
	owner    *clusterv1.Machine // nil: none is known
	cluster  *clusterv1.Cluster // nil: there is none
	group    *nstancev1.GroupStatus
	instance *nstancev1.InstanceStatus // as its shard last told it; nil: unknown
	// configured: spec.shard names a shard, and state is that one's.
	configured bool
	state      shards.State
	// absent: the shard has said that there is no such instance.
	absent bool
}

// pooled reports whether the instance is one of a pool's.
func (s *scope) pooled() bool { return s.machine.Labels[clusterv1.MachinePoolNameLabel] != "" }

// outcome is how far a pass over a NstanceMachine came.
type outcome struct {
	// reason and message are what Ready says, when it is not the instance itself that
	// has something to say.
	reason, message string
	// unreachable: the shard did not answer.
	unreachable bool
	// inLine: the shard is asked by so many that it was not asked for this one.
	inLine bool
	// terminating is set when it was asked just now that the instance goes.
	terminating string
	// again is when to look again; zero: when something happens.
	again time.Duration
	// err is tried again with growing waits.
	err error
}

// stopped reports whether the steps that follow can't do anything.
func (o outcome) stopped() bool { return o.reason != "" || o.err != nil || o.inLine }

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,namespace=nstance,resources=nstancemachines,verbs=list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,namespace=nstance,resources=nstancemachines/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,namespace=nstance,resources=nstanceshardgroups,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,namespace=nstance,resources=clusters,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,namespace=nstance,resources=machines,verbs=list;watch;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,namespace=nstance,resources=events,verbs=create;patch

// Reconcile brings one NstanceMachine a little further.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var m v1beta1.NstanceMachine
	if err := r.Client.Get(ctx, req.NamespacedName, &m); err != nil {
		if apierrors.IsNotFound(err) {
			r.asks.forget(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	s, err := r.read(ctx, &m)
	if err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case capi.Paused(s.cluster, &m):
		err = r.show(ctx, &m, paused(m.Status, m.Generation, r.Now()))
		return settle(outcome{err: err})
	case !m.DeletionTimestamp.IsZero():
		return settle(r.remove(ctx, s))
	default:
		return settle(r.advance(ctx, s))
	}
}

// advance takes the steps of a NstanceMachine that is to be there.
func (r *Reconciler) advance(ctx context.Context, s *scope) outcome {
	var o outcome
	for _, step := range []func(context.Context, *scope) outcome{r.place, r.create, r.identify, r.replace} {
		if o = step(ctx, s); o.stopped() || o.terminating != "" {
			break
		}
	}
	if ignorable(s, o) {
		return o
	}
	now := r.Now()
	if err := r.show(ctx, s.machine, observe(s, o, now)); err != nil {
		return outcome{err: err}
	}
	if _, left := s.state.Silent(now); left > 0 && (o.again == 0 || left < o.again) {
		o.again = left // to say that the shard is silent
	}
	if !o.stopped() && gone(s) {
		o.err = r.giveUp(ctx, s)
	}
	return o
}

// ignorable reports whether there is nothing to show yet: who made the object is about
// to give it a Machine, or it is about to have an instance.
func ignorable(s *scope, o outcome) bool {
	return o.reason == reasonNoMachine && len(s.machine.OwnerReferences) > 0 || o.err != nil && o.reason == "" ||
		o.inLine && s.machine.Spec.InstanceID == ""
}

// read gathers what is known of a NstanceMachine.
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
	r.look(s)
	return s, nil
}

// look reads what the shard says, as far as spec names shard and instance.
func (r *Reconciler) look(s *scope) {
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

// owner is the Machine that the object belongs to: the one that its owner reference
// names, or, before Cluster API has set that, one of its name that refers to it. Nil:
// there is none.
func (r *Reconciler) owner(ctx context.Context, m *v1beta1.NstanceMachine) (*clusterv1.Machine, error) {
	owner, err := capi.OwnerMachine(ctx, r.Client, m)
	switch {
	case owner != nil && !names(m, owner.UID):
		return nil, nil //nolint:nilnil // documented; another one of its name, which may have another instance
	case owner != nil || err != nil || len(m.OwnerReferences) > 0:
		return owner, err
	}
	var same clusterv1.Machine
	err = r.Client.Get(ctx, client.ObjectKeyFromObject(m), &same)
	if err != nil || !refersTo(&same, m.Name) {
		return nil, client.IgnoreNotFound(err)
	}
	return &same, nil
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

// refersTo reports whether a Machine's infrastructure is the NstanceMachine of a name.
func refersTo(m *clusterv1.Machine, name string) bool {
	ref := m.Spec.InfrastructureRef
	return ref.APIGroup == v1beta1.Group && ref.Kind == "NstanceMachine" && ref.Name == name
}

// settle says when to come back. Somebody else's write is no error: what is decided on
// what was there before is decided anew.
func settle(o outcome) (reconcile.Result, error) {
	switch {
	case apierrors.IsConflict(o.err):
		return reconcile.Result{RequeueAfter: soon}, nil
	case o.err != nil:
		return reconcile.Result{}, o.err
	}
	return reconcile.Result{RequeueAfter: o.again}, nil
}
