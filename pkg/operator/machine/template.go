package machine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/shards"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Templates shows the capacity of machines in NstanceMachineTemplates, so that a
// MachineDeployment can be scaled from zero. Its fields must not change after the start; then
// it is safe for concurrent use.
type Templates struct {
	Client client.Client
	Shards Groups
}

// SetupWithManager registers the controller.
func (r *Templates) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("nstancemachinetemplate").
		For(&v1beta1.NstanceMachineTemplate{}).
		WatchesRawSource(r.Shards.Source(r.ofEvent)).
		WithOptions(controller.Options{SkipNameValidation: new(true)}).
		Complete(r)
}

// ofEvent returns the templates that a shard's event may concern.
func (r *Templates) ofEvent(e shards.Event) []reconcile.Request {
	if e.Of != shards.OfGroup && e.Of != shards.OfShard {
		return nil
	}
	var all v1beta1.NstanceMachineTemplateList
	if err := r.Client.List(context.Background(), &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache has stopped, and so does this controller
	}
	var requests []reconcile.Request
	for i := range all.Items {
		if t := &all.Items[i]; e.Of == shards.OfShard || string(t.Spec.Template.Spec.Group) == e.Group {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(t)})
		}
	}
	return requests
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,namespace=nstance,resources=nstancemachinetemplates,verbs=list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,namespace=nstance,resources=nstancemachinetemplates/status,verbs=patch

// Reconcile writes a template's status if it changed.
func (r *Templates) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var t v1beta1.NstanceMachineTemplate
	if err := r.Client.Get(ctx, req.NamespacedName, &t); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	cluster, err := capi.Cluster(ctx, r.Client, &t)
	if err != nil || capi.Paused(cluster, &t) || !t.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, err
	}
	capacity, info := facts(t.Spec.Template.Spec, r.groups(t.Spec.Template.Spec))
	to := t.DeepCopy()
	to.Status.ObservedGeneration = t.Generation
	if capacity != nil { // otherwise the last known one stays
		to.Status.Capacity, to.Status.NodeInfo = capacity, info
	}
	if equality.Semantic.DeepEqual(t.Status, to.Status) {
		return reconcile.Result{}, nil
	}
	if err := r.Client.Status().Patch(ctx, to, client.MergeFrom(&t), capi.FieldOwner); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("write the status of NstanceMachineTemplate %s: %w", req.NamespacedName, err)
	}
	return reconcile.Result{}, nil
}

// groups returns a template's group on each shard where machines may be.
func (r *Templates) groups(spec v1beta1.NstanceMachineSpec) []*nstancev1.GroupStatus {
	names := r.Shards.Names()
	if spec.Shard != "" {
		names = []string{string(spec.Shard)}
	}
	var all []*nstancev1.GroupStatus
	for _, name := range names {
		all = append(all, r.Shards.Group(name, string(spec.Group)))
	}
	return all
}

// facts returns what machines have: from the first group that reports the template's type.
// Empty capacity: unknown.
func facts(spec v1beta1.NstanceMachineSpec, groups []*nstancev1.GroupStatus) (v1beta1.Capacity, v1beta1.NodeInfo) {
	for _, g := range groups {
		c := g.GetCapacity()
		if c == nil || spec.InstanceType != "" && spec.InstanceType != g.GetInstanceType() {
			continue
		}
		return v1beta1.Capacity{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(c.GetCpuMillis(), resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(c.GetMemoryBytes(), resource.BinarySI),
		}, infoOf(g, spec.InstanceType)
	}
	return nil, v1beta1.NodeInfo{}
}
