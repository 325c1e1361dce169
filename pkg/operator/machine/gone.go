package machine

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/operator/capi"
)

// deleteMachine deletes the Machine of an instance that is gone, so that Cluster API cleans up
// the Node and the Machine's owner creates a replacement. There is nothing to drain. Machines
// of a pool are left to the pool's controller.
func (r *Reconciler) deleteMachine(ctx context.Context, s *scope) error {
	m := s.owner
	if s.pooled() || m == nil || !m.DeletionTimestamp.IsZero() || capi.Paused(s.cluster, m) {
		return nil
	}
	if err := capi.SkipDrain(ctx, r.Client, m); err != nil {
		return err
	}
	r.Recorder.Eventf(m, s.machine, "Warning", reasonGone, "DeleteMachine",
		"the instance %s of shard %s is gone", s.machine.Spec.InstanceID, s.machine.Spec.Shard)
	err := r.Client.Delete(ctx, m, client.Preconditions{UID: &m.UID})
	return gentle(err, "delete Machine %s, whose instance is gone", m.Name)
}

// gentle wraps err with what was tried; NotFound is no error.
func gentle(err error, format string, args ...any) error {
	if client.IgnoreNotFound(err) == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
