package pool

import (
	"context"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/shards"
)

// index finds pools in memory, since event handlers must not block. It has every pool from its
// first pass on, which needs no event.
type index struct {
	mu    sync.Mutex
	pools map[types.NamespacedName]entry
	ids   map[string]types.NamespacedName
}

type entry struct {
	group  string
	shards []string
	ids    []string // provider IDs, and the names of instances: a Node has one of them
}

func (x *index) note(s *scope) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pools == nil {
		x.pools, x.ids = map[types.NamespacedName]entry{}, map[string]types.NamespacedName{}
	}
	key := client.ObjectKeyFromObject(s.pool)
	x.drop(key)
	e := entry{group: string(s.pool.Spec.Group), ids: slices.Concat(s.pool.Spec.ProviderIDList, s.onDemand)}
	for name := range s.infra {
		e.ids = append(e.ids, name)
	}
	for _, p := range s.places {
		e.shards = append(e.shards, p.shard)
	}
	x.pools[key] = e
	for _, id := range e.ids {
		x.ids[id] = key
	}
}

func (x *index) forget(key types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(key)
}

func (x *index) drop(key types.NamespacedName) {
	for _, id := range x.pools[key].ids {
		if x.ids[id] == key {
			delete(x.ids, id)
		}
	}
	delete(x.pools, key)
}

// ofEvent returns the pools that a shard's event concerns.
func (x *index) ofEvent(e shards.Event) []reconcile.Request {
	if e.Of == shards.OfProblem {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []reconcile.Request
	for key, p := range x.pools {
		if slices.Contains(p.shards, e.Shard) && (e.Of == shards.OfShard || e.Group == p.group) {
			out = append(out, reconcile.Request{NamespacedName: key})
		}
	}
	return out
}

// ofNode returns the pool whose list has a node, or that has an instance of its name, or whose
// group has it on demand.
func (x *index) ofNode(_ context.Context, o client.Object) []reconcile.Request {
	node, ok := o.(*corev1.Node)
	if !ok {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	key, ok := x.ids[node.Spec.ProviderID]
	if !ok {
		key, ok = x.ids[node.Name]
	}
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// nodeChanged ignores the frequent updates of kubelets.
func nodeChanged(e event.UpdateEvent) bool {
	old, ok := e.ObjectOld.(*corev1.Node)
	now, ok2 := e.ObjectNew.(*corev1.Node)
	return !ok || !ok2 ||
		old.Spec.ProviderID != now.Spec.ProviderID ||
		!reflect.DeepEqual(old.Spec.Taints, now.Spec.Taints) ||
		!reflect.DeepEqual(old.Labels, now.Labels) ||
		!reflect.DeepEqual(old.Annotations, now.Annotations) ||
		!reflect.DeepEqual(old.Status.Capacity, now.Status.Capacity)
}

func ofMachinePool(_ context.Context, o client.Object) []reconcile.Request {
	p, ok := o.(*clusterv1.MachinePool)
	if !ok {
		return nil
	}
	ref := p.Spec.Template.Spec.InfrastructureRef
	if ref.Kind != kind().Kind || ref.APIGroup != v1beta1.Group {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: p.Namespace, Name: ref.Name}}}
}

// ofMachine returns the pool of a Machine that a MachinePool owns.
func (r *Reconciler) ofMachine(ctx context.Context, o client.Object) []reconcile.Request {
	for _, ref := range o.GetOwnerReferences() {
		if ref.Kind != "MachinePool" {
			continue
		}
		var p clusterv1.MachinePool
		if err := r.Client.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: ref.Name}, &p); err == nil {
			return ofMachinePool(ctx, &p)
		}
	}
	return nil
}

// ofCluster returns all pools of a Cluster, which may have been paused or unpaused.
func (r *Reconciler) ofCluster(ctx context.Context, o client.Object) []reconcile.Request {
	var pools v1beta1.NstanceMachinePoolList
	err := r.Client.List(ctx, &pools, client.InNamespace(o.GetNamespace()), client.MatchingLabels{clusterv1.ClusterNameLabel: o.GetName()})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the pools of a cluster", "cluster", o.GetName())
		return nil
	}
	var out []reconcile.Request
	for i := range pools.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pools.Items[i])})
	}
	return out
}
