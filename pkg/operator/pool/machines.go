package pool

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// infraMachines are the NstanceMachines of a pool, by name.
func (r *Reconciler) infraMachines(ctx context.Context, from client.Reader, s *scope) (map[string]*v1beta1.NstanceMachine, error) {
	all := map[string]*v1beta1.NstanceMachine{}
	if s.owner == nil {
		return all, nil
	}
	var list v1beta1.NstanceMachineList
	if err := from.List(ctx, &list, client.InNamespace(s.pool.Namespace), client.MatchingLabels(labels(s.owner))); err != nil {
		return nil, fmt.Errorf("list the pool's NstanceMachines: %w", err)
	}
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	return all, nil
}

// keepMachines sees to it that there is an NstanceMachine for every instance that has a
// machine, for which Cluster API's core then makes a Machine, and to it that both go
// once the instance is gone.
func (r *Reconciler) keepMachines(ctx context.Context, s *scope) error {
	errs := []error{r.retireMachines(ctx, s)}
	for _, p := range s.places {
		if !p.ours() {
			continue
		}
		for _, i := range r.Shards.Instances(p.shard, string(s.pool.Spec.Group)) {
			if s.infra[i.GetId()] != nil || !shown(i) {
				continue
			}
			if err := r.Client.Create(ctx, r.machineOf(s, p.shard, i), capi.FieldOwner); err != nil && !apierrors.IsAlreadyExists(err) {
				errs = append(errs, fmt.Errorf("make the NstanceMachine %s: %w", i.GetId(), err))
			}
		}
	}
	return errors.Join(errs...)
}

// shown: the instance is the pool's, and has a machine that is not being deleted.
func shown(i *nstancev1.InstanceStatus) bool {
	switch i.GetPhase() {
	case nstancev1.InstancePhase_INSTANCE_PHASE_PENDING, nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING,
		nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING:
		return !i.GetOnDemand() && i.GetNodeProviderId() != ""
	default:
		return false
	}
}

// machineOf is the NstanceMachine of an instance. The pool owns it without controlling
// it: that is for the Machine, which core makes.
func (r *Reconciler) machineOf(s *scope, shard string, i *nstancev1.InstanceStatus) *v1beta1.NstanceMachine {
	m := &v1beta1.NstanceMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.pool.Namespace, Name: i.GetId(), Labels: labels(s.owner)},
		Spec: v1beta1.NstanceMachineSpec{
			Group: s.pool.Spec.Group, Shard: v1beta1.Name(shard),
			InstanceID: v1beta1.InstanceID(i.GetId()), ProviderID: i.GetNodeProviderId(),
		},
	}
	m.Labels[v1beta1.LabelGroup], m.Labels[v1beta1.LabelShard] = string(s.pool.Spec.Group), shard
	_ = controllerutil.SetOwnerReference(s.pool, m, r.Client.Scheme()) // both are of one namespace
	return m
}

// retireMachines deletes what stands for instances that are gone.
func (r *Reconciler) retireMachines(ctx context.Context, s *scope) error {
	var errs []error
	for _, m := range s.infra {
		if m.Spec.InstanceID == "" || m.Spec.Shard == "" || !gone(r.Shards, s, string(m.Spec.Shard), string(m.Spec.InstanceID)) {
			continue
		}
		if err := r.retire(ctx, m); err != nil {
			errs = append(errs, fmt.Errorf("remove the machine of instance %s, which is gone: %w", m.Spec.InstanceID, err))
		}
	}
	return errors.Join(errs...)
}

// retire deletes a Machine, which then deletes its NstanceMachine; or the latter, if
// core has made no Machine. Nothing is drained: there is no machine any more.
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
	if _, excluded := owner.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; !excluded {
		old := owner.DeepCopy()
		metav1.SetMetaDataAnnotation(&owner.ObjectMeta, clusterv1.ExcludeNodeDrainingAnnotation, "")
		if err := r.Client.Patch(ctx, owner, client.MergeFrom(old), capi.FieldOwner); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if owner.DeletionTimestamp.IsZero() {
		return r.remove(ctx, owner)
	}
	return nil
}

// machineFor is the Machine of an NstanceMachine; nil: there is none. Core names it
// alike, and has it own the other only a moment later, so it is looked for by name,
// past the cache.
func (r *Reconciler) machineFor(ctx context.Context, m *v1beta1.NstanceMachine) (*clusterv1.Machine, error) {
	if owner, err := capi.OwnerMachine(ctx, r.Reader, m); err != nil || owner != nil {
		return owner, err
	}
	var owner clusterv1.Machine
	err := r.Reader.Get(ctx, client.ObjectKeyFromObject(m), &owner)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // documented
	}
	if err != nil || owner.Spec.InfrastructureRef.Name != m.Name || owner.Spec.InfrastructureRef.Kind != "NstanceMachine" {
		return nil, err
	}
	return &owner, nil
}
