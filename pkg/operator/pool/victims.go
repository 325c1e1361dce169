package pool

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/spread"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// leavingTaint is the Cluster Autoscaler's taint on a node that it is removing.
const leavingTaint = "ToBeDeletedByClusterAutoscaler"

// victims returns the named instances to remove when the pool shrinks. If too few are named,
// it waits for the rest of the grace period: names and size are two writes, in either order. A
// name that comes later counts only for the next time.
func (r *Reconciler) victims(ctx context.Context, s *scope) (named []spread.Machine, wait time.Duration, err error) {
	key := client.ObjectKeyFromObject(s.pool)
	by := spread.Excess(s.replicas(), s.shards())
	if by == 0 {
		r.waits.end(key)
		return nil, 0, nil
	}
	began := r.waits.began(key, s.replicas(), r.Now())
	// Read the machines after the replicas, so that names written first are seen.
	all, err := r.candidates(ctx, s, by)
	if err != nil {
		return nil, 0, err
	}
	if named = spread.Victims(by, all); len(named) < by {
		wait = max(r.Grace-r.Now().Sub(began), 0)
	}
	return named, wait, nil
}

// candidates returns the machines that can be named, read uncached.
func (r *Reconciler) candidates(ctx context.Context, s *scope, by int) ([]spread.Machine, error) {
	var machines clusterv1.MachineList
	if err := r.Reader.List(ctx, &machines, client.InNamespace(s.pool.Namespace), client.MatchingLabels(labels(s.owner))); err != nil {
		return nil, fmt.Errorf("list the pool's machines: %w", err)
	}
	var all []spread.Machine
	var ids []string // provider IDs, in the order of all
	named := 0
	for i := range machines.Items {
		m := &machines.Items[i]
		it, node, ok := r.candidate(s, m)
		if !ok {
			continue
		}
		if it.Annotated || it.Deleting {
			named++
		}
		all, ids = append(all, it), append(ids, node)
	}
	if named < by {
		r.markTainted(ctx, s, all, ids)
	}
	return all, nil
}

// candidate returns a Machine's instance and provider ID, if it can still be named.
func (r *Reconciler) candidate(s *scope, m *clusterv1.Machine) (spread.Machine, string, bool) {
	ref := m.Spec.InfrastructureRef
	if ref.Kind != "NstanceMachine" || ref.APIGroup != v1beta1.Group {
		return spread.Machine{}, "", false
	}
	id, node, shard := ref.Name, m.Spec.ProviderID, ""
	if o := s.infra[ref.Name]; o != nil {
		id, node, shard = string(o.Spec.InstanceID), o.Spec.ProviderID, string(o.Spec.Shard)
	}
	at := slices.IndexFunc(s.places, func(p place) bool {
		return p.shard == shard || (shard == "" && r.Shards.Instance(p.shard, id) != nil)
	})
	if id == "" || at < 0 {
		return spread.Machine{}, "", false
	}
	p := &s.places[at]
	if p.unknown() || p.fixed() || gone(r.Shards, s, p.shard, id) ||
		(p.group != nil && slices.Contains(p.group.Spec.Remove, v1beta1.InstanceID(id))) {
		return spread.Machine{}, "", false
	}
	_, annotated := m.Annotations[clusterv1.DeleteMachineAnnotation]
	// A Machine is also deleted because its instance leaves: that has left the pool's size
	// already, and another one is its replacement.
	leaving := leaves(r.Shards.Instance(p.shard, id))
	return spread.Machine{
		ID: id, Shard: at, Annotated: annotated, Deleting: !leaving && !m.DeletionTimestamp.IsZero(), Leaving: leaving,
	}, node, true
}

// leaves reports whether the shard is removing an instance, as far as is known.
func leaves(i *nstancev1.InstanceStatus) bool {
	return i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING || i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETING
}

// markTainted marks the machines whose nodes have the taint; none if nodes can't be read.
func (r *Reconciler) markTainted(ctx context.Context, s *scope, all []spread.Machine, ids []string) {
	known := identities(r.Shards, s)
	for i := range all {
		if all[i].Annotated || all[i].Deleting || ids[i] == "" {
			continue
		}
		node, err := nodeOf(ctx, r.Nodes, known[ids[i]], ids[i])
		if err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("could not read nodes", "error", err.Error())
			return
		}
		if node == nil || !marked(node) {
			continue
		}
		// Read it uncached: the taint may have been removed since, or the name reused.
		var now corev1.Node
		if err := r.Nodes.Reader().Get(ctx, client.ObjectKeyFromObject(node), &now); client.IgnoreNotFound(err) != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("could not read a node", "node", node.Name, "error", err.Error())
			continue
		}
		all[i].Tainted = now.UID == node.UID && now.Spec.ProviderID == node.Spec.ProviderID && marked(&now)
	}
}

// marked reports whether the Cluster Autoscaler is removing a node.
func marked(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == leavingTaint })
}

// gone reports whether an instance of the pool certainly no longer exists.
func gone(all Shards, s *scope, shard, id string) bool {
	if i := all.Instance(shard, id); i != nil {
		return ended(i)
	}
	return all.Missing(shard, string(s.pool.Spec.Group), id)
}

func ended(i *nstancev1.InstanceStatus) bool {
	return i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
}

// waits records since when pools have been waiting to shrink.
type waits struct {
	mu    sync.Mutex
	since map[types.NamespacedName]shrinking
}

type shrinking struct {
	to    int
	since time.Time
}

func (w *waits) began(pool types.NamespacedName, to int, now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok := w.since[pool]; ok && at.to == to {
		return at.since
	}
	if w.since == nil {
		w.since = map[types.NamespacedName]shrinking{}
	}
	w.since[pool] = shrinking{to: to, since: now}
	return now
}

func (w *waits) end(pool types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.since, pool)
}
