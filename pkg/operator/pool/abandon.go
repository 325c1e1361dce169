package pool

import (
	"context"
	"errors"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
)

// abandonAll abandons the instances that live on without the pool.
func (r *Reconciler) abandonAll(ctx context.Context, s *scope) error {
	e := eraser{Client: r.Client, reader: r.Reader}
	var errs []error
	for _, m := range s.infra {
		if !r.lives(s, m) {
			continue
		}
		owner, err := r.machineFor(ctx, m)
		if err == nil {
			err = e.abandon(ctx, m, owner)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("leave instance %s as it is: %w", m.Spec.InstanceID, err))
		}
	}
	return errors.Join(errs...)
}

// eraser removes objects and leaves what they stand for.
type eraser struct {
	client.Client

	reader client.Reader // past the cache
}

// abandon removes the objects that stand for an instance, and nothing else. With the pool
// they would be deleted all the same, and then core would drain the instance's Node and
// delete it, for good: a kubelet that runs does not register again.
func (e eraser) abandon(ctx context.Context, m *v1beta1.NstanceMachine, owner *clusterv1.Machine) error {
	ctrl.LoggerFrom(ctx).Info("leave an instance as it is", "instance", m.Spec.InstanceID, "shard", m.Spec.Shard)
	if owner != nil { // first, since the other one leads to it
		if err := e.erase(ctx, owner, clusterv1.MachineFinalizer); err != nil {
			return fmt.Errorf("remove its Machine: %w", err)
		}
	}
	if err := e.erase(ctx, m, v1beta1.Finalizer); err != nil {
		return fmt.Errorf("remove its NstanceMachine: %w", err)
	}
	return nil
}

// erase deletes an object without the work that its controller does then: that one
// leaves alone what is paused, but for its finalizer, which it puts back on an object
// that is not being deleted.
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

// edit writes a change of an object, if it is one, unless somebody else has changed the
// object since it was read.
func edit(ctx context.Context, c client.Client, o client.Object, change func() bool) error {
	old := o.DeepCopyObject().(client.Object)
	if !change() {
		return nil
	}
	return c.Patch(ctx, o, capi.Locked(old), capi.FieldOwner)
}
