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

// delete takes the pool's parts away, waits until their shards have let go of them, and
// then lets go of the pool. Machines whose instances are gone go on being cleaned up,
// and instances that live on are abandoned.
func (r *Reconciler) delete(ctx context.Context, cached *scope) error {
	key := client.ObjectKeyFromObject(cached.pool)
	if !slices.Contains(cached.pool.Finalizers, v1beta1.Finalizer) {
		return nil
	}
	if r.sizing.of(key) { // it may make a part, and from the next pass on it makes none
		return errSizing
	}
	s, err := r.read(ctx, r.Reader, key) // a part may be younger than the cache
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
	if len(left) == 0 { // nothing makes others now, and the cache may lack the last ones
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
				"waits for the shards that remove the group: "+strings.Join(left, ", "))
		}))
		return errors.Join(errs...)
	}
	if err := errors.Join(append(errs, r.abandonAll(ctx, s))...); err != nil {
		return err
	}
	return r.letGo(ctx, s.pool)
}

// letGo takes our finalizer off the pool.
func (r *Reconciler) letGo(ctx context.Context, pool *v1beta1.NstanceMachinePool) error {
	err := edit(ctx, r.Client, pool, func() bool { return controllerutil.RemoveFinalizer(pool, v1beta1.Finalizer) })
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove the finalizer: %w", err)
	}
	return nil
}

// lives: nobody has told that the machine's instance is gone.
func (r *Reconciler) lives(s *scope, m *v1beta1.NstanceMachine) bool {
	return m.Spec.InstanceID != "" && !gone(r.Shards, s, string(m.Spec.Shard), string(m.Spec.InstanceID))
}

// lingers: the group is gone and the instance, whose Machine nobody would clean up
// later, is not, or its shard can't tell yet. A group that is there though the pool has
// no part of it lives on with its instances: its shard's static config names it.
func (r *Reconciler) lingers(s *scope, m *v1beta1.NstanceMachine) bool {
	shard := string(m.Spec.Shard)
	_, configured := r.Shards.State(shard)
	return configured && r.lives(s, m) && r.Shards.Group(shard, string(s.pool.Spec.Group)) == nil
}
