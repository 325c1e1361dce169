package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// delete deletes the pool's NstanceShardGroups, waits until their shards have removed the
// groups, and then removes the pool's finalizer. Machines of deleted instances are still
// cleaned up, and instances that live on are abandoned.
func (r *Reconciler) delete(ctx context.Context, cached *scope) error {
	key := client.ObjectKeyFromObject(cached.pool)
	if !slices.Contains(cached.pool.Finalizers, v1beta1.Finalizer) {
		return nil
	}
	if r.sizing.of(key) { // the sizer may be creating an NstanceShardGroup; after this pass it won't
		return errSizing
	}
	s, err := r.read(ctx, r.Reader, key) // the cache may lack a recent NstanceShardGroup
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var left []string
	errs := []error{r.retireMachines(ctx, s)}
	for _, p := range s.places {
		if !p.ours() {
			continue
		}
		left = append(left, p.shard)
		if p.group.DeletionTimestamp.IsZero() {
			errs = append(errs, r.remove(ctx, p.group))
		}
	}
	if len(left) == 0 { // no others are created now, but the cache may lack recent ones
		if s.infra, err = r.infraMachines(ctx, r.Reader, s); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	for _, m := range s.infra {
		if shard := string(m.Spec.Shard); r.lingers(s, m) && !slices.Contains(left, shard) {
			left = append(left, shard)
		}
	}
	slices.Sort(left)
	if len(left) > 0 {
		errs = append(errs, r.patchStatus(ctx, s, func(status *v1beta1.NstanceMachinePoolStatus) {
			s.set(status, v1beta1.ConditionReady, metav1.ConditionFalse, "Deleting",
				"waiting for shards to remove the group: "+strings.Join(left, ", "))
		}))
		return errors.Join(errs...)
	}
	if err := errors.Join(append(errs, r.abandonAll(ctx, s))...); err != nil {
		return err
	}
	return r.letGo(ctx, s.pool)
}

// letGo removes our finalizer from the pool.
func (r *Reconciler) letGo(ctx context.Context, pool *v1beta1.NstanceMachinePool) error {
	err := edit(ctx, r.Client, pool, func() bool { return controllerutil.RemoveFinalizer(pool, v1beta1.Finalizer) })
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove the finalizer: %w", err)
	}
	return nil
}

// lives reports whether no shard has reported the machine's instance gone.
func (r *Reconciler) lives(s *scope, m *v1beta1.NstanceMachine) bool {
	return m.Spec.InstanceID != "" && !gone(r.Shards, s, string(m.Spec.Shard), string(m.Spec.InstanceID))
}

// lingers reports whether the group is gone but the instance, whose Machine would never be
// cleaned up later, is not, or its shard can't say yet. A group that exists without an
// NstanceShardGroup lives on with its instances: its shard's static config names it.
func (r *Reconciler) lingers(s *scope, m *v1beta1.NstanceMachine) bool {
	shard := string(m.Spec.Shard)
	_, configured := r.Shards.State(shard)
	return configured && r.lives(s, m) && r.Shards.Group(shard, string(s.pool.Spec.Group)) == nil
}
