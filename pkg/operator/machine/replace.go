package machine

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// replace has the shard replace a pool's instance that Cluster API wants remedied: that
// of a Machine whose health check failed, or that bears the annotation. A MachineSet
// does so with its Machines itself; for a pool's nobody else does. The shard makes the
// new instance first and drains the old one then, so its Machine is not deleted here.
func (r *Reconciler) replace(ctx context.Context, s *scope) outcome {
	m := s.machine
	if !s.pooled() || !remedy(s.owner) || !stays(s.instance) || meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionTerminating) {
		return outcome{}
	}
	if !s.state.Reachable {
		return outcome{}
	}
	asked, err := r.call(s, func(shard string) error { return r.Shards.DeleteInstance(ctx, shard, string(m.Spec.InstanceID)) })
	switch {
	case err != nil:
		return failed(m, err)
	case !asked:
		return inLine()
	}
	return outcome{terminating: reasonReplaceAsked}
}

// stays reports whether nothing is known of an instance that makes it leave.
func stays(i *nstancev1.InstanceStatus) bool {
	switch i.GetPhase() {
	case nstancev1.InstancePhase_INSTANCE_PHASE_PENDING, nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING:
		return true
	default:
		return false
	}
}

// remedy reports whether a Machine is to be replaced: by the annotation, or because a
// MachineHealthCheck found it unhealthy and left it to the Machine's owner.
func remedy(m *clusterv1.Machine) bool {
	if m == nil || !m.DeletionTimestamp.IsZero() {
		return false
	}
	if _, asked := m.Annotations[clusterv1.RemediateMachineAnnotation]; asked {
		return true
	}
	return is(m, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse) &&
		is(m, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse)
}

func is(m *clusterv1.Machine, kind string, status metav1.ConditionStatus) bool {
	return meta.IsStatusConditionPresentAndEqual(m.Status.Conditions, kind, status)
}
