package pool

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// patchStatus patches a changed status. The cache may be stale: the patch is conditional, since
// one made from an old status would write conditions and times from before.
func (r *Reconciler) patchStatus(ctx context.Context, s *scope, change func(*v1beta1.NstanceMachinePoolStatus)) error {
	old := s.pool.DeepCopy()
	change(&s.pool.Status)
	if equality.Semantic.DeepEqual(old.Status, s.pool.Status) {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, s.pool, capi.Locked(old), capi.FieldOwner); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write the status: %w", err))
	}
	return nil
}

func (r *Reconciler) writePaused(ctx context.Context, s *scope) error {
	return r.patchStatus(ctx, s, func(status *v1beta1.NstanceMachinePoolStatus) {
		s.set(status, v1beta1.ConditionPaused, metav1.ConditionTrue, "Paused", "reconciliation is paused")
	})
}

// writeStatus writes the pool's observed state; nodes are its machines' nodes.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope, nodes []*corev1.Node) error {
	return r.patchStatus(ctx, s, func(status *v1beta1.NstanceMachinePoolStatus) {
		s.conditions(status)
		status.ObservedGeneration = s.pool.Generation
		status.InfrastructureMachineKind = "NstanceMachine"
		status.Replicas = new(int32(len(s.pool.Spec.ProviderIDList)))
		status.NodeInfo.OperatingSystem = "linux"
		s.shape(status, nodes)
		// Core copies the list once the pool is provisioned, so the list must be written
		// first. A provisioned pool stays so: otherwise core would stop copying IDs.
		if deref(status.Ready, false) || (s.listed && s.begun()) {
			status.Ready, status.Initialization.Provisioned = new(true), new(true)
		}
	})
}

// begun reports whether a shard has the group as the pool wants it, and has reported its
// machines.
func (s *scope) begun() bool {
	return slices.ContainsFunc(s.places, func(p place) bool {
		return p.ours() && p.told != nil && p.state.Known
	})
}

// shape describes the machines. What no shard reports at the moment keeps its last value.
func (s *scope) shape(status *v1beta1.NstanceMachinePoolStatus, nodes []*corev1.Node) {
	static, sure := false, true
	var first *nstancev1.GroupStatus
	var capacity *nstancev1.MachineCapacity
	template, subnets := true, true // all shards agree
	for _, p := range s.places {
		sure = sure && p.state.Known
		g := p.told
		if g == nil || p.foreign {
			continue
		}
		static = static || g.GetIsStatic()
		if first == nil {
			first = g
		}
		template = template && g.GetTemplate() == first.GetTemplate()
		subnets = subnets && g.GetSubnetPool() == first.GetSubnetPool()
		if capacity == nil {
			capacity = g.GetCapacity()
		}
	}
	if static || sure {
		status.IsStatic = new(static)
	}
	if first != nil {
		status.Template, status.SubnetPool = "", ""
		if template {
			status.Template = first.GetTemplate()
		}
		if subnets {
			status.SubnetPool = first.GetSubnetPool()
		}
	}
	setCapacity(status, capacity, nodes)
}

// setCapacity uses the provider's capacity of the instance type, or else the minimum over the
// nodes: what fits there fits everywhere.
func setCapacity(status *v1beta1.NstanceMachinePoolStatus, said *nstancev1.MachineCapacity, nodes []*corev1.Node) {
	learned, arch := leastOf(nodes)
	if said.GetCpuMillis() > 0 {
		learned[corev1.ResourceCPU] = *resource.NewMilliQuantity(said.GetCpuMillis(), resource.DecimalSI)
	}
	if said.GetMemoryBytes() > 0 {
		learned[corev1.ResourceMemory] = *resource.NewQuantity(said.GetMemoryBytes(), resource.BinarySI)
	}
	if a := said.GetArch(); isArch(a) {
		arch = a
	}
	if arch != "" {
		status.NodeInfo.Architecture = arch
	}
	for name, q := range learned {
		if status.Capacity == nil {
			status.Capacity = v1beta1.Capacity{}
		}
		status.Capacity[name] = q
	}
}

// leastOf returns the minimum over the nodes of each resource, and the first architecture.
func leastOf(nodes []*corev1.Node) (least v1beta1.Capacity, arch string) {
	least = v1beta1.Capacity{}
	for _, n := range nodes {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			q, ok := n.Status.Capacity[name]
			if before, has := least[name]; ok && (!has || q.Cmp(before) < 0) {
				least[name] = q
			}
		}
		if a := n.Status.NodeInfo.Architecture; isArch(a) && (arch == "" || a < arch) {
			arch = a
		}
	}
	return least, arch
}

// isArch reports whether a is valid in a status.
func isArch(a string) bool { return a == "amd64" || a == "arm64" }

func (s *scope) set(status *v1beta1.NstanceMachinePoolStatus, kind string, is metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: message, ObservedGeneration: s.pool.Generation,
	})
}
