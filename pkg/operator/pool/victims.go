package pool

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/spread"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// leavingTaint is what the Cluster Autoscaler puts on a node that it takes away.
const leavingTaint = "ToBeDeletedByClusterAutoscaler"

// victims are the instances that leave by name when the pool shrinks. While fewer are
// named than leave, the others are waited for until the grace is over: the names and
// the number are two writes, and whoever makes the second one first still means both.
// A name that comes later is too late for this time; it counts for the next.
func (r *Reconciler) victims(ctx context.Context, s *scope) (named []spread.Machine, wait time.Duration, err error) {
	key := client.ObjectKeyFromObject(s.pool)
	by := spread.Excess(s.replicas(), s.shards())
	if by == 0 {
		r.waits.end(key)
		return nil, 0, nil
	}
	began := r.waits.began(key, s.replicas(), r.Now())
	// The machines are read after the replicas: a name that was written first is seen.
	all, err := r.candidates(ctx, s, by)
	if err != nil {
		return nil, 0, err
	}
	if named = spread.Victims(by, all); len(named) < by {
		wait = max(r.Grace-r.Now().Sub(began), 0)
	}
	return named, wait, nil
}

// candidates are the machines that could be named, past any cache.
func (r *Reconciler) candidates(ctx context.Context, s *scope, by int) ([]spread.Machine, error) {
	var machines clusterv1.MachineList
	if err := r.Reader.List(ctx, &machines, client.InNamespace(s.pool.Namespace), client.MatchingLabels(labels(s.owner))); err != nil {
		return nil, fmt.Errorf("list the pool's machines: %w", err)
	}
	var all []spread.Machine
	var ids []string // of the nodes, in the order of all
	named := 0
	for i := range machines.Items {
		m := &machines.Items[i]
		it, node, ok := r.candidate(s, m)
		if !ok {
			continue
		}
		if it.Annotated {
			named++
		}
		all, ids = append(all, it), append(ids, node)
	}
	if named < by {
		r.lookForTaints(ctx, all, ids)
	}
	return all, nil
}

// candidate is what a Machine stands for, if that can still be named.
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
	return spread.Machine{ID: id, Shard: at, Annotated: annotated}, node, true
}

// lookForTaints marks the machines whose nodes are to go. Without nodes there are none.
func (r *Reconciler) lookForTaints(ctx context.Context, all []spread.Machine, ids []string) {
	for i := range all {
		if all[i].Annotated || ids[i] == "" {
			continue
		}
		node, err := r.Nodes.NodeByProviderID(ctx, ids[i])
		if err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("can't read nodes", "error", err.Error())
			return
		}
		if node == nil {
			continue
		}
		for _, t := range node.Spec.Taints {
			all[i].Tainted = all[i].Tainted || t.Key == leavingTaint
		}
	}
}

// gone: an instance of the pool certainly is no more.
func gone(all Shards, s *scope, shard, id string) bool {
	if i := all.Instance(shard, id); i != nil {
		return ended(i)
	}
	return all.Missing(shard, string(s.pool.Spec.Group), id)
}

func ended(i *nstancev1.InstanceStatus) bool {
	return i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
}

// waits remembers since when pools are to have fewer replicas.
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
