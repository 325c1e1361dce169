// Package problems records problems that shards report as Kubernetes events on the objects
// concerned.
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

// Shards is what the reporter needs of the shards. *shards.Set implements it.
type Shards interface {
	Group(shard, group string) *nstancev1.GroupStatus
	Source(requests func(shards.Event) []reconcile.Request) source.Source
}

var _ Shards = (*shards.Set)(nil)

// Pods are the workload cluster's, where their events are recorded.
type Pods interface {
	events.EventRecorder
	// Waiting returns the pods that request an on-demand instance of a group and have no node
	// yet.
	Waiting(ctx context.Context, group string) ([]client.Object, error)
}

// Reporter turns problems into events: one when a problem begins, and another when it ends.
type Reporter struct {
	Client   client.Client
	Shards   Shards
	Pods     Pods // nil: no events on pods
	Recorder events.EventRecorder
	Now      func() time.Time

	// Namespace and Cluster identify the objects; Cluster is the name of the Cluster and its
	// NstanceCluster.
	Namespace, Cluster string

	mu   sync.Mutex
	news map[reconcile.Request]shards.Event // not recorded yet
	told recent[word]
	open recent[reconcile.Request] // recorded problems that have not ended
}

// indexInstance indexes machines by their instance.
const indexInstance = "problems.spec.instanceID"

// SetupWithManager registers the controller.
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

// hear stores a problem until it is recorded. A newer state of the same problem replaces an
// older one.
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

// Reconcile implements reconcile.Reconciler: it records one problem.
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
		r.recordEvent(r.Recorder, o, e)
	}
	if err := r.recordOnPods(ctx, e); err != nil {
		return ctrl.Result{}, err
	}
	r.close(req, e)
	return ctrl.Result{}, nil
}

// close marks an event as recorded.
func (r *Reporter) close(req ctrl.Request, e shards.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.news[req] == e { // otherwise there is a newer state, whose request is queued
		delete(r.news, req)
	}
	if e.Problem.GetOver() {
		r.open.drop(req)
	} else if e.Problem != nil {
		r.open.add(req, r.Now())
	}
}

// recordEvent records an event on an object, unless it had the same one recently.
func (r *Reporter) recordEvent(to events.EventRecorder, o client.Object, e shards.Event) {
	kind, text := corev1.EventTypeWarning, e.Problem.GetMessage()
	if e.Problem.GetOver() {
		kind, text = corev1.EventTypeNormal, "resolved"
	}
	if r.again(wordOf(o, e.Problem)) {
		return
	}
	// A note has at most 1,024 bytes.
	to.Eventf(o, nil, kind, reason(e.Problem), "WatchErrors", "shard %s: %.900s", e.Shard, text)
}

// again stores that something is recorded, and reports whether it was already, a short time
// ago.
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

// recordOnPods records on pods that wait for an instance that there is no capacity.
func (r *Reporter) recordOnPods(ctx context.Context, e shards.Event) error {
	if r.Pods == nil || e.Problem.GetOver() || !r.noCapacity(e) {
		return nil
	}
	pods, err := r.Pods.Waiting(ctx, e.Problem.GetGroup())
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		return nil
	}
	ours, err := r.served(ctx, e)
	for _, o := range pods {
		if ours[o.GetUID()] {
			r.recordEvent(r.Pods, o, e)
		}
	}
	return err
}

// served returns the pods for which an instance of the group was requested from its shard.
// Other pods only name the group: another tenant's, or one that does not allow them instances.
func (r *Reporter) served(ctx context.Context, e shards.Event) (map[types.UID]bool, error) {
	var all v1beta1.NstanceMachineList
	err := r.Client.List(ctx, &all, client.InNamespace(r.Namespace), client.HasLabels{v1beta1.LabelPodUID}, client.UnsafeDisableDeepCopy)
	out := map[types.UID]bool{}
	for i := range all.Items {
		if m := &all.Items[i]; string(m.Spec.Group) == e.Problem.GetGroup() && string(m.Spec.Shard) == e.Shard {
			out[types.UID(m.Labels[v1beta1.LabelPodUID])] = true
		}
	}
	return out, err
}

// noCapacity reports whether the problem is that the provider has no capacity for a group.
func (r *Reporter) noCapacity(e shards.Event) bool {
	full := []string{"SubnetFull", "QuotaUsedUp"}
	if e.Problem.GetGroup() == "" {
		return false
	}
	if e.Problem.GetReason() != v1beta1.ConditionCreatesFailing {
		return slices.Contains(full, e.Problem.GetReason())
	}
	why := shards.Condition(r.Shards.Group(e.Shard, e.Problem.GetGroup()), v1beta1.ConditionCreatesFailing)
	return slices.Contains(full, why.GetReason())
}

// reason returns a problem's reason, which must not be empty in Kubernetes.
func reason(p *nstancev1.WatchErrorsResponse) string {
	if p.GetReason() == "" {
		return "Problem"
	}
	return p.GetReason()
}
