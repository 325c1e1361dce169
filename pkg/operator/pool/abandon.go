package pool

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
)

// abandonAll abandons the instances that outlive the pool.
func (r *Reconciler) abandonAll(ctx context.Context, s *scope) error {
	e := eraser{Client: r.Client, reader: r.Reader}
	var living []*v1beta1.NstanceMachine
	for _, m := range s.infra {
		if r.lives(s, m) {
			living = append(living, m)
		}
	}
	return inParallel(living, func(m *v1beta1.NstanceMachine) error {
		owner, err := r.machineFor(ctx, m)
		if err == nil {
			err = e.abandon(ctx, m.DeepCopy(), owner)
		}
		if err != nil {
			return fmt.Errorf("abandon instance %s: %w", m.Spec.InstanceID, err)
		}
		return nil
	})
}

// eraser removes objects without deleting their instances.
type eraser struct {
	client.Client

	reader client.Reader // uncached
}

// abandon removes the objects of an instance, and nothing else. If they were deleted with the
// pool, core would drain the instance's Node and delete it for good: a running kubelet does
// not register again.
func (e eraser) abandon(ctx context.Context, m *v1beta1.NstanceMachine, owner *clusterv1.Machine) error {
	ctrl.LoggerFrom(ctx).Info("abandon an instance", "instance", m.Spec.InstanceID, "shard", m.Spec.Shard)
	if owner != nil { // first, since it is found through the NstanceMachine
		if err := e.erase(ctx, owner, clusterv1.MachineFinalizer); err != nil {
			return fmt.Errorf("remove its Machine: %w", err)
		}
	}
	if err := e.erase(ctx, m, v1beta1.Finalizer); err != nil {
		return fmt.Errorf("remove its NstanceMachine: %w", err)
	}
	return nil
}

// erase deletes an object without its controller's cleanup. It pauses the object first: the
// controller then does nothing except restore its finalizer, and that only until the object is
// being deleted.
func (e eraser) erase(ctx context.Context, o client.Object, finalizer string) error {
	err := edit(ctx, e, o, func() bool {
		all := o.GetAnnotations()
		if _, paused := all[clusterv1.PausedAnnotation]; paused {
			return false
		}
		if all == nil {
			all = map[string]string{}
		}
		all[clusterv1.PausedAnnotation] = ""
		o.SetAnnotations(all)
		return true
	})
	if err == nil && o.GetDeletionTimestamp().IsZero() {
		if err = e.Delete(ctx, o, client.Preconditions{UID: new(o.GetUID())}); err == nil {
			err = e.reader.Get(ctx, client.ObjectKeyFromObject(o), o)
		}
	}
	if err == nil && !o.GetDeletionTimestamp().IsZero() {
		err = edit(ctx, e, o, func() bool { return controllerutil.RemoveFinalizer(o, finalizer) })
	}
	return client.IgnoreNotFound(err)
}

// edit patches an object if change reports a difference; the patch conflicts if the object has
// changed since it was read.
func edit(ctx context.Context, c client.Client, o client.Object, change func() bool) error {
	old := o.DeepCopyObject().(client.Object)
	if !change() {
		return nil
	}
	return c.Patch(ctx, o, capi.Locked(old), capi.FieldOwner)
}
