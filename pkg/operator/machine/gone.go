package machine

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/operator/capi"
)

// giveUp deletes the Machine of an instance that is gone, so that Cluster API cleans up
// its Node and whoever made the Machine makes another one. There is nothing to drain. A
// pool's Machines are the pool's.
func (r *Reconciler) giveUp(ctx context.Context, s *scope) error {
	m := s.owner
	if s.pooled() || m == nil || !m.DeletionTimestamp.IsZero() || capi.Paused(s.cluster, m) {
		return nil
	}
	if _, excluded := m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; !excluded {
		to := m.DeepCopy()
		if to.Annotations == nil {
			to.Annotations = map[string]string{}
		}
		to.Annotations[clusterv1.ExcludeNodeDrainingAnnotation] = ""
		if err := r.Client.Patch(ctx, to, client.MergeFrom(m), capi.FieldOwner); err != nil {
			return gentle(err, "have Machine %s not be drained", m.Name)
		}
	}
	r.Recorder.Eventf(m, s.machine, "Warning", reasonGone, "DeleteMachine",
		"the instance %s of shard %s is gone", s.machine.Spec.InstanceID, s.machine.Spec.Shard)
	err := r.Client.Delete(ctx, m, client.Preconditions{UID: &m.UID})
	return gentle(err, "delete Machine %s, whose instance is gone", m.Name)
}

// gentle says what was tried; that the object is gone meanwhile is no error.
func gentle(err error, format string, args ...any) error {
	if client.IgnoreNotFound(err) == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
