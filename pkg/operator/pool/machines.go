package pool

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// atOnce bounds how many of a pool's machines are created, deleted or abandoned at once.
const atOnce = 16

// inParallel runs do for all items, and joins the errors.
func inParallel[T any](items []T, do func(T) error) error {
	errs := make([]error, len(items))
	var work errgroup.Group
	work.SetLimit(atOnce)
	for i, item := range items {
		work.Go(func() error {
			errs[i] = do(item)
			return nil
		})
	}
	_ = work.Wait() // the errors are in errs
	return errors.Join(errs...)
}

// infraMachines returns the NstanceMachines of a pool, by name. They may share memory with the
// cache, so they must not be changed.
func (r *Reconciler) infraMachines(ctx context.Context, from client.Reader, s *scope) (map[string]*v1beta1.NstanceMachine, error) {
	all := map[string]*v1beta1.NstanceMachine{}
	if s.owner == nil {
		return all, nil
	}
	var list v1beta1.NstanceMachineList
	err := from.List(ctx, &list, client.InNamespace(s.pool.Namespace), client.MatchingLabels(labels(s.owner)), client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the pool's NstanceMachines: %w", err)
	}
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	return all, nil
}

// syncMachines ensures an NstanceMachine for every instance that has a machine (Cluster API's
// core then creates a Machine for it), and deletes both once the instance is gone.
func (r *Reconciler) syncMachines(ctx context.Context, s *scope) error {
	var lacking []*v1beta1.NstanceMachine
	for _, p := range s.places {
		if !p.ours() {
			continue
		}
		for _, i := range r.Shards.Instances(p.shard, string(s.pool.Spec.Group)) {
			if s.infra[i.GetId()] == nil && shown(i) {
				lacking = append(lacking, r.machineOf(s, p.shard, i))
			}
		}
	}
	return errors.Join(r.retireMachines(ctx, s), inParallel(lacking, func(m *v1beta1.NstanceMachine) error {
		if err := r.Client.Create(ctx, m, capi.FieldOwner); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create NstanceMachine %s: %w", m.Name, err)
		}
		return nil
	}))
}

// shown reports whether the instance is the pool's and has a machine that is not being
// deleted.
func shown(i *nstancev1.InstanceStatus) bool {
	switch i.GetPhase() {
	case nstancev1.InstancePhase_INSTANCE_PHASE_PENDING, nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING,
		nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING:
		return !i.GetOnDemand() && i.GetNodeProviderId() != ""
	default:
		return false
	}
}

// machineOf returns the NstanceMachine of an instance. The pool owns it without being its
// controller: that is the Machine, which core creates.
func (r *Reconciler) machineOf(s *scope, shard string, i *nstancev1.InstanceStatus) *v1beta1.NstanceMachine {
	m := &v1beta1.NstanceMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.pool.Namespace, Name: i.GetId(), Labels: labels(s.owner)},
		Spec: v1beta1.NstanceMachineSpec{
			Group: s.pool.Spec.Group, Shard: v1beta1.Name(shard),
			InstanceID: v1beta1.InstanceID(i.GetId()), ProviderID: i.GetNodeProviderId(),
		},
	}
	m.Labels[v1beta1.LabelGroup], m.Labels[v1beta1.LabelShard] = string(s.pool.Spec.Group), shard
	_ = controllerutil.SetOwnerReference(s.pool, m, r.Client.Scheme()) // can't fail: both are in one namespace
	return m
}

// retireMachines deletes the objects of instances that are gone, and the Machines of those
// that their shard drains.
func (r *Reconciler) retireMachines(ctx context.Context, s *scope) error {
	var ended, drained []*v1beta1.NstanceMachine
	for _, m := range s.infra {
		shard, id := string(m.Spec.Shard), string(m.Spec.InstanceID)
		switch {
		case id == "" || shard == "":
		case gone(r.Shards, s, shard, id):
			ended = append(ended, m)
		case r.Shards.Instance(shard, id).GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING:
			drained = append(drained, m)
		}
	}
	return errors.Join(inParallel(ended, func(m *v1beta1.NstanceMachine) error {
		if err := r.retire(ctx, m); err != nil {
			return fmt.Errorf("delete the Machine of instance %s, which is gone: %w", m.Spec.InstanceID, err)
		}
		return nil
	}), inParallel(drained, func(m *v1beta1.NstanceMachine) error {
		owner, err := announced(ctx, r.Client, m)
		if err == nil && owner != nil {
			err = r.remove(ctx, owner)
		}
		if err != nil {
			return fmt.Errorf("delete the Machine of instance %s, which is being drained: %w", m.Spec.InstanceID, err)
		}
		return nil
	}))
}

// announced returns the Machine to delete because its shard drains the instance, for good; nil
// if there is none. The Cluster Autoscaler then counts it as leaving and names another, the
// owners of its hooks act, and it shows why it goes. Core drains the node too, and waits for
// the finalizer of the NstanceMachine before it deletes the Node; without the finalizer, the
// Machine stays.
func announced(ctx context.Context, from client.Reader, m *v1beta1.NstanceMachine) (*clusterv1.Machine, error) {
	if !m.DeletionTimestamp.IsZero() || !controllerutil.ContainsFinalizer(m, v1beta1.Finalizer) {
		return nil, nil //nolint:nilnil // documented
	}
	owner, err := capi.MachineFor(ctx, from, m, v1beta1.MachineKind())
	if err != nil || owner == nil || !owner.DeletionTimestamp.IsZero() || capi.Paused(nil, owner) {
		return nil, err
	}
	return owner, nil
}

// retire deletes a Machine, which then deletes its NstanceMachine; or the latter, if core has
// created no Machine. Nothing is drained or detached: there is no machine any more.
func (r *Reconciler) retire(ctx context.Context, m *v1beta1.NstanceMachine) error {
	owner, err := r.machineFor(ctx, m)
	if err != nil {
		return err
	}
	if owner == nil {
		if m.DeletionTimestamp.IsZero() {
			return r.remove(ctx, m)
		}
		return nil
	}
	if err := capi.SkipDrain(ctx, r.Client, owner); err != nil {
		return err
	}
	if owner.DeletionTimestamp.IsZero() {
		return r.remove(ctx, owner)
	}
	return nil
}

// machineFor returns the Machine of an NstanceMachine; nil if there is none. One that the cache
// does not show yet is read uncached.
func (r *Reconciler) machineFor(ctx context.Context, m *v1beta1.NstanceMachine) (*clusterv1.Machine, error) {
	if owner, err := capi.MachineFor(ctx, r.Client, m, v1beta1.MachineKind()); err != nil || owner != nil {
		return owner, err
	}
	return capi.MachineFor(ctx, r.Reader, m, v1beta1.MachineKind())
}
