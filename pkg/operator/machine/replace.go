package machine

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// replace has an instance replaced that Cluster API wants remediated: its Machine failed a
// health check, or has the annotation. A MachineSet remediates its own Machines; for a pool's
// and a pod's, nothing else does. A pool's is replaced by its shard. The shard creates the replacement first and then
// drains the old instance, so its Machine is not deleted here.
func (r *Reconciler) replace(ctx context.Context, s *scope) stepResult {
	m := s.machine
	if !s.pooled() {
		return stepResult{err: r.remediate(ctx, s)}
	}
	if !remedy(s.owner) || !stays(s.instance) || meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionTerminating) {
		return stepResult{}
	}
	if !s.state.Reachable {
		return stepResult{}
	}
	again, err := r.call(s, func(shard string) error { return r.Shards.DeleteInstance(ctx, shard, string(m.Spec.InstanceID)) })
	switch {
	case err != nil:
		return callFailed(m, err)
	case again > 0:
		return busy(again)
	}
	return stepResult{terminating: reasonReplaceAsked}
}

// remediate deletes the Machine of a pod's instance that Cluster API wants remediated: the pod
// gets another. Cluster API drains its node first. A Machine with a controller is left to it.
func (r *Reconciler) remediate(ctx context.Context, s *scope) error {
	m := s.owner
	if s.machine.Spec.PodNamespace == "" || !remedy(m) || metav1.GetControllerOf(m) != nil || capi.Paused(s.cluster, m) {
		return nil
	}
	why := "it has the annotation " + clusterv1.RemediateMachineAnnotation
	if c := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition); c != nil && c.Message != "" {
		why = c.Message
	}
	r.Recorder.Eventf(m, s.machine, "Warning", reasonUnhealthy, "DeleteMachine", "to be replaced: %.900s", why)
	err := r.Client.Delete(ctx, m, client.Preconditions{UID: &m.UID})
	return gentle(err, "delete Machine %s, which is to be replaced", m.Name)
}

// stays reports whether the instance is not being removed, as far as is known.
func stays(i *nstancev1.InstanceStatus) bool {
	switch i.GetPhase() {
	case nstancev1.InstancePhase_INSTANCE_PHASE_PENDING, nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING:
		return true
	default:
		return false
	}
}

// remedy reports whether a Machine is to be replaced: by the annotation, or because a
// MachineHealthCheck found it unhealthy and left remediation to its owner.
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
