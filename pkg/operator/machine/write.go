package machine

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
)

// write patches an object if to differs from it, and fails if it has changed since it was
// read. to then holds the result.
func (r *Reconciler) write(ctx context.Context, from, to *v1beta1.NstanceMachine) error {
	if equality.Semantic.DeepEqual(from, to) {
		return nil
	}
	patch := capi.Locked(from)
	if err := r.Client.Patch(ctx, to, patch, capi.FieldOwner); err != nil {
		return fmt.Errorf("write NstanceMachine %s: %w", client.ObjectKeyFromObject(to), err)
	}
	r.versions.note(from, to)
	return nil
}

// show patches a changed status.
func (r *Reconciler) show(ctx context.Context, m *v1beta1.NstanceMachine, status v1beta1.NstanceMachineStatus) error {
	if equality.Semantic.DeepEqual(m.Status, status) {
		return nil
	}
	to := m.DeepCopy()
	to.Status = status
	patch := capi.Locked(m)
	switch err := r.Client.Status().Patch(ctx, to, patch, capi.FieldOwner); {
	case err == nil:
		r.versions.note(m, to)
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("write the status of NstanceMachine %s: %w", client.ObjectKeyFromObject(m), err)
	}
	return nil
}
