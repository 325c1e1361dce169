// Package problems tells what shards report as Kubernetes events, on the objects that
// it concerns.
package problems

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/shards"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Shards is what is needed of the shards. *shards.Set is one.
type Shards interface {
	Group(shard, group string) *nstancev1.GroupStatus
	Source(requests func(shards.Event) []reconcile.Request) source.Source
}

var _ Shards = (*shards.Set)(nil)

// Pods are those of the workload cluster, where their events belong.
type Pods interface {
	events.EventRecorder
	// Waiting are those that ask for an instance of a group of their own, and have no
	// node yet.
	Waiting(ctx context.Context, group string) ([]client.Object, error)
}

// Reporter turns problems into events. A problem that lasts is one event, and its end
// another one.
type Reporter struct {
	Client   client.Client
	Shards   Shards
	Pods     Pods // nil: no pod is told
	Recorder events.EventRecorder
	Now      func() time.Time

	// Namespace and Cluster, the name of the CAPI Cluster and its NstanceCluster, say
	// whose objects are told.
	Namespace, Cluster string

	mu   sync.Mutex
	news map[reconcile.Request]shards.Event // what was not told yet
	told recent[word]
	open recent[reconcile.Request] // problems that were told and are not over, as far as is known
}

// indexInstance finds machines in the cache by their instance.
const indexInstance = "problems.spec.instanceID"

// SetupWithManager adds the reporter to a manager.
func (r *Reporter) SetupWithManager(mgr ctrl.Manager) error {
	r.news, r.told, r.open = map[reconcile.Request]shards.Event{}, newRecent[word](), newRecent[reconcile.Request]()
	byInstance := func(o client.Object) []string { return []string{string(o.(*v1beta1.NstanceMachine).Spec.InstanceID)} }
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1beta1.NstanceMachine{}, indexInstance, byInstance); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("problems").
		WithOptions(controller.Options{SkipNameValidation: new(true)}).
		WatchesRawSource(r.Shards.Source(r.hear)).
		Complete(r)
}

// hear keeps a problem until it is told. A later word on the same problem takes the
// place of one that was not told yet.
func (r *Reporter) hear(e shards.Event) []reconcile.Request {
	if e.Of != shards.OfProblem || e.Problem == nil {
		return nil
	}
	req := reconcile.Request{NamespacedName: types.NamespacedName{
		Namespace: e.Shard, Name: strings.Join([]string{e.Problem.GetReason(), e.Problem.GetGroup(), e.Problem.GetInstanceId()}, "/"),
	}}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.news[req] = e
	return []reconcile.Request{req}
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=nstanceshardgroups;nstancemachinepools;nstancemachines;nstanceclusters,verbs=list;watch,namespace=nstance
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinepools,verbs=list;watch,namespace=nstance
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list

// Reconcile implements reconcile.Reconciler: it tells one problem.
func (r *Reporter) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.mu.Lock()
	e, ok := r.news[req]
	_, begun := r.open.at(req)
	r.mu.Unlock()
	if !ok || e.Problem.GetOver() && !begun {
		r.close(req, e)
		return ctrl.Result{}, nil
	}
	objects, err := r.concerned(ctx, e)
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, o := range objects {
		r.tell(r.Recorder, o, e)
	}
	if err := r.tellPods(ctx, e); err != nil {
		return ctrl.Result{}, err
	}
	r.close(req, e)
	return ctrl.Result{}, nil
}

// close notes that an event was told.
func (r *Reporter) close(req ctrl.Request, e shards.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.news[req] == e { // otherwise there is a later one, whose request is waiting
		delete(r.news, req)
	}
	if e.Problem.GetOver() {
		r.open.drop(req)
	} else if e.Problem != nil {
		r.open.add(req, r.Now())
	}
}

// tell records an event on an object, unless it has had the same a short time ago.
func (r *Reporter) tell(to events.EventRecorder, o client.Object, e shards.Event) {
	kind, text := corev1.EventTypeWarning, e.Problem.GetMessage()
	if e.Problem.GetOver() {
		kind, text = corev1.EventTypeNormal, "it is over"
	}
	if r.again(wordOf(o, e.Problem)) {
		return
	}
	// A note has at most 1,024 bytes.
	to.Eventf(o, nil, kind, reason(e.Problem), "WatchErrors", "shard %s: %.900s", e.Shard, text)
}

// again notes that something is told, and reports whether it was a short time ago.
func (r *Reporter) again(w word) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Now()
	if at, ok := r.told.at(w); ok && now.Sub(at) < while {
		return true
	}
	r.told.add(w, now)
	return false
}

// tellPods tells the pods that wait for an instance that there is no room for it.
func (r *Reporter) tellPods(ctx context.Context, e shards.Event) error {
	if r.Pods == nil || e.Problem.GetOver() || !r.noCapacity(e) {
		return nil
	}
	pods, err := r.Pods.Waiting(ctx, e.Problem.GetGroup())
	if err != nil {
		return err
	}
	for _, o := range pods {
		r.tell(r.Pods, o, e)
	}
	return nil
}

// noCapacity reports whether a problem is that the provider has no room for a group.
func (r *Reporter) noCapacity(e shards.Event) bool {
	full := []string{"SubnetFull", "QuotaUsedUp"}
	if e.Problem.GetGroup() == "" {
		return false
	}
	if e.Problem.GetReason() != v1beta1.ConditionCreatesFailing {
		return slices.Contains(full, e.Problem.GetReason())
	}
	for _, c := range r.Shards.Group(e.Shard, e.Problem.GetGroup()).GetConditions() { // why they fail
		if c.GetType() == v1beta1.ConditionCreatesFailing && c.GetStatus() {
			return slices.Contains(full, c.GetReason())
		}
	}
	return false
}

// reason is a problem's, which must not be empty in Kubernetes.
func reason(p *nstancev1.WatchErrorsResponse) string {
	if p.GetReason() == "" {
		return "Problem"
	}
	return p.GetReason()
}
