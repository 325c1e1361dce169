package pool_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/shards"
	"github.com/nstance/nstance/pkg/operator/workload"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// pusher is a stand-in for the controller of NstanceShardGroups.
type pusher struct {
	api client.Client
	set *shards.Set
}

func (p *pusher) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("pusher").For(&v1beta1.NstanceShardGroup{}).Complete(p)
}

func (p *pusher) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var g v1beta1.NstanceShardGroup
	if err := p.api.Get(ctx, req.NamespacedName, &g); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	shard, group := string(g.Spec.Shard), string(g.Spec.Group)
	if state, configured := p.set.State(shard); configured && !state.Reachable {
		return ctrl.Result{RequeueAfter: 50 * time.Millisecond}, nil // a call would block, and delay the other shards
	}
	old := g.DeepCopy()
	if !g.DeletionTimestamp.IsZero() {
		if _, configured := p.set.State(shard); configured && !p.set.Group(shard, group).GetIsStatic() {
			if err := p.set.DeleteGroup(ctx, shard, group, ""); err != nil {
				return ctrl.Result{}, err
			}
			if p.set.Group(shard, group) != nil {
				return ctrl.Result{RequeueAfter: 50 * time.Millisecond}, nil
			}
		}
		controllerutil.RemoveFinalizer(&g, v1beta1.Finalizer)
		return ctrl.Result{}, client.IgnoreNotFound(p.api.Patch(ctx, &g, client.MergeFrom(old)))
	}
	if controllerutil.AddFinalizer(&g, v1beta1.Finalizer) {
		if err := p.api.Patch(ctx, &g, client.MergeFrom(old)); err != nil {
			return ctrl.Result{}, err
		}
	}
	push := &nstancev1.UpsertGroupRequest{Key: group, Size: g.Spec.Size, Template: &g.Spec.Template}
	if g.Spec.InstanceType != "" {
		push.InstanceType = &g.Spec.InstanceType
	}
	for _, id := range g.Spec.Remove {
		push.Remove = append(push.Remove, string(id))
	}
	if g.Status.ObservedGeneration == g.Generation {
		return ctrl.Result{}, nil
	}
	if _, err := p.set.UpsertGroup(ctx, shard, push); err != nil {
		return ctrl.Result{}, err
	}
	old = g.DeepCopy()
	g.Status.ObservedGeneration = g.Generation
	meta.SetStatusCondition(&g.Status.Conditions,
		metav1.Condition{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Pushed"})
	// The cache may be stale, and a test may have set another condition.
	return ctrl.Result{}, client.IgnoreNotFound(p.api.Status().Patch(ctx, &g, capi.Locked(old)))
}

// core is a stand-in for Cluster API's controllers of MachinePools and Machines: it sets the
// owner of the infrastructure, copies its list, and creates and deletes Machines.
type core struct {
	api client.Client

	mu      sync.Mutex
	drained map[string]bool // Machines whose nodes were drained and deleted
}

// drainedMachines returns the Machines whose nodes were drained.
func (c *core) drainedMachines() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.drained))
}

func (c *core) setup(mgr ctrl.Manager) error {
	toPool := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		key := client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetLabels()[clusterv1.MachinePoolNameLabel]}
		return []reconcile.Request{{NamespacedName: key}}
	})
	same := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("core").For(&clusterv1.MachinePool{}).
		Watches(&v1beta1.NstanceMachinePool{}, same).Watches(&v1beta1.NstanceMachine{}, toPool).Watches(&clusterv1.Machine{}, toPool).
		Complete(c)
}

func (c *core) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var p clusterv1.MachinePool
	if err := c.api.Get(ctx, req.NamespacedName, &p); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return ctrl.Result{}, errors.Join(c.reconcilePool(ctx, &p), c.reconcileMachines(ctx, &p))
}

// reconcilePool adopts a pool that is not being deleted, copies its list, and creates the
// missing Machines.
func (c *core) reconcilePool(ctx context.Context, p *clusterv1.MachinePool) error {
	var infra v1beta1.NstanceMachinePool
	if err := c.api.Get(ctx, client.ObjectKeyFromObject(p), &infra); err != nil || !infra.DeletionTimestamp.IsZero() {
		return client.IgnoreNotFound(err)
	}
	old := infra.DeepCopy()
	metav1.SetMetaDataLabel(&infra.ObjectMeta, clusterv1.ClusterNameLabel, p.Spec.ClusterName)
	if err := controllerutil.SetControllerReference(p, &infra, c.api.Scheme()); err != nil {
		return err
	}
	if len(old.OwnerReferences) == 0 {
		if err := c.api.Patch(ctx, &infra, client.MergeFrom(old)); err != nil {
			return err
		}
	}
	if deref(infra.Status.Ready, false) && !slices.Equal(p.Spec.ProviderIDList, infra.Spec.ProviderIDList) {
		was := p.DeepCopy()
		p.Spec.ProviderIDList = infra.Spec.ProviderIDList
		if err := c.api.Patch(ctx, p, client.MergeFrom(was)); err != nil {
			return err
		}
	}
	if infra.Status.InfrastructureMachineKind != "NstanceMachine" {
		return nil
	}
	var all v1beta1.NstanceMachineList
	if err := c.api.List(ctx, &all, client.InNamespace(p.Namespace), client.MatchingLabels(labels(p))); err != nil {
		return err
	}
	for i := range all.Items {
		if err := c.createMachine(ctx, p, &all.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func labels(p *clusterv1.MachinePool) map[string]string {
	return map[string]string{clusterv1.MachinePoolNameLabel: p.Name, clusterv1.ClusterNameLabel: p.Spec.ClusterName}
}

// reconcileMachines adds finalizers to the Machines of a pool, and finishes their deletions.
func (c *core) reconcileMachines(ctx context.Context, p *clusterv1.MachinePool) error {
	var infra v1beta1.NstanceMachineList
	if err := c.api.List(ctx, &infra, client.InNamespace(p.Namespace), client.MatchingLabels(labels(p))); err != nil {
		return err
	}
	has := map[string]bool{}
	for i := range infra.Items {
		has[infra.Items[i].Name] = true
	}
	var all clusterv1.MachineList
	if err := c.api.List(ctx, &all, client.InNamespace(p.Namespace), client.MatchingLabels(labels(p))); err != nil {
		return err
	}
	for i := range all.Items {
		if err := c.reconcileMachine(ctx, &all.Items[i], has); err != nil {
			return err
		}
	}
	return nil
}

func (c *core) createMachine(ctx context.Context, p *clusterv1.MachinePool, o *v1beta1.NstanceMachine) error {
	var m clusterv1.Machine
	if err := c.api.Get(ctx, client.ObjectKeyFromObject(o), &m); client.IgnoreNotFound(err) != nil || err == nil {
		return err
	}
	// The list may be stale: the Machine may be missing because both are gone.
	if err := c.api.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return client.IgnoreNotFound(err)
	}
	m = clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, Labels: labels(p), Finalizers: []string{clusterv1.MachineFinalizer},
	}}
	m.Spec = clusterv1.MachineSpec{
		ClusterName: p.Spec.ClusterName, Bootstrap: clusterv1.Bootstrap{DataSecretName: new("")}, ProviderID: o.Spec.ProviderID,
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.Group, Kind: "NstanceMachine", Name: o.Name},
	}
	if err := controllerutil.SetControllerReference(p, &m, c.api.Scheme()); err != nil {
		return err
	}
	if err := c.api.Create(ctx, &m); err != nil {
		return client.IgnoreAlreadyExists(err)
	}
	old := o.DeepCopy()
	if err := controllerutil.SetControllerReference(&m, o, c.api.Scheme()); err != nil {
		return err
	}
	return client.IgnoreNotFound(c.api.Patch(ctx, o, client.MergeFrom(old)))
}

// reconcileMachine adds the finalizer to a Machine, even a paused one, and finishes its
// deletion unless it is paused.
func (c *core) reconcileMachine(ctx context.Context, m *clusterv1.Machine, infra map[string]bool) error {
	old := m.DeepCopy()
	if m.DeletionTimestamp.IsZero() && controllerutil.AddFinalizer(m, clusterv1.MachineFinalizer) {
		return client.IgnoreNotFound(c.api.Patch(ctx, m, client.MergeFrom(old)))
	}
	if _, paused := m.Annotations[clusterv1.PausedAnnotation]; m.DeletionTimestamp.IsZero() || paused {
		return nil
	}
	return c.finishDeletion(ctx, m, infra[m.Name])
}

// finishDeletion deletes the infrastructure of a Machine, and removes the Machine's finalizer
// once it is gone.
func (c *core) finishDeletion(ctx context.Context, m *clusterv1.Machine, infra bool) error {
	if _, excluded := m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; !excluded {
		c.mu.Lock()
		c.drained[m.Name] = true
		c.mu.Unlock()
	}
	if infra {
		o := &v1beta1.NstanceMachine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}
		return client.IgnoreNotFound(c.api.Delete(ctx, o))
	}
	old := m.DeepCopy()
	controllerutil.RemoveFinalizer(m, clusterv1.MachineFinalizer)
	return client.IgnoreNotFound(c.api.Patch(ctx, m, client.MergeFrom(old)))
}

// nodes is a stand-in for the workload cluster, with the Nodes of the test's own API server.
type nodes struct {
	api     client.Client
	cache   cache.Cache
	err     error // of each read; nil: the cluster is reachable
	lookups atomic.Int64
	stale   atomic.Pointer[func(*corev1.Node)] // changes a Node as a stale cache does; nil: up to date
}

func (n *nodes) NodeOf(ctx context.Context, w workload.Identity) (*corev1.Node, error) {
	n.lookups.Add(1)
	if n.err != nil {
		return nil, n.err
	}
	var all corev1.NodeList
	if err := n.api.List(ctx, &all); err != nil {
		return nil, err
	}
	found, err := w.Choose(all.Items)
	if stale := n.stale.Load(); found != nil && stale != nil {
		(*stale)(found)
	}
	return found, err
}

func (n *nodes) Client() client.Client { return n.api }

func (n *nodes) Reader() client.Reader { return n.api }

func (n *nodes) Source(o client.Object, requests handler.MapFunc, predicates ...predicate.Predicate) source.Source {
	return source.Kind(n.cache, o, handler.EnqueueRequestsFromMapFunc(requests), predicates...)
}
