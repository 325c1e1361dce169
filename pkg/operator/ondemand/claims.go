package ondemand

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// claim is what was made for a pod so far; each may be nil.
type claim struct {
	machine        *clusterv1.Machine
	infrastructure *v1beta1.NstanceMachine
}

// step is what a claim needs next.
type step int

const (
	nothing step = iota
	makeBoth
	makeMachine
	makeInfrastructure
	// unmake: what is there belonged to something that is gone. Both are made anew when
	// it is gone too.
	unmake
)

// next says what a claim of a pod that is there needs. While one of its objects goes,
// the other must not be made: it would be taken for a part of the old one.
func (c claim) next() step {
	m, i := c.machine, c.infrastructure
	switch {
	case m != nil && !m.DeletionTimestamp.IsZero(), i != nil && !i.DeletionTimestamp.IsZero():
		return nothing
	case m == nil && i == nil:
		return makeBoth
	case m == nil && len(i.OwnerReferences) > 0:
		return unmake // its Machine was there
	case m == nil:
		return makeMachine
	case i == nil && m.Spec.ProviderID != "":
		return unmake // it had an instance, and nobody knows which
	case i == nil:
		return makeInfrastructure
	}
	return nothing
}

// claims are what was made for pods of a name, by the pods' UIDs.
func (r *Reconciler) claims(ctx context.Context, pod types.NamespacedName) (map[types.UID]claim, error) {
	ours := []client.ListOption{
		client.InNamespace(r.Cluster.Namespace), client.HasLabels{LabelPodUID}, client.UnsafeDisableDeepCopy,
	}
	var machines clusterv1.MachineList
	if err := r.Client.List(ctx, &machines, ours...); err != nil {
		return nil, err
	}
	var infrastructures v1beta1.NstanceMachineList
	if err := r.Client.List(ctx, &infrastructures, ours...); err != nil {
		return nil, err
	}
	all := map[types.UID]claim{}
	for i := range machines.Items {
		m := &machines.Items[i]
		if key, _ := podOf(m); key == pod {
			c := all[types.UID(m.Labels[LabelPodUID])]
			c.machine = m
			all[types.UID(m.Labels[LabelPodUID])] = c
		}
	}
	for i := range infrastructures.Items {
		m := &infrastructures.Items[i]
		if key, _ := podOf(m); key == pod {
			c := all[types.UID(m.Labels[LabelPodUID])]
			c.infrastructure = m
			all[types.UID(m.Labels[LabelPodUID])] = c
		}
	}
	return all, nil
}

// unmake drops what is left of a claim, unless the Machine is there after all: then the
// cache only shows it late.
func (r *Reconciler) unmake(ctx context.Context, c claim) error {
	if c.machine == nil {
		err := r.Reader.Get(ctx, client.ObjectKeyFromObject(c.infrastructure), &clusterv1.Machine{})
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return r.drop(ctx, c)
}

// drop deletes a claim: its Machine, which takes the rest along, or what is there
// without one.
func (r *Reconciler) drop(ctx context.Context, c claim) error {
	var o client.Object
	switch {
	case c.machine != nil:
		o = c.machine
	case c.infrastructure != nil:
		o = c.infrastructure
	default:
		return nil
	}
	if o.GetDeletionTimestamp() != nil {
		return nil
	}
	uid := o.GetUID()
	err := r.Client.Delete(ctx, o, client.Preconditions{UID: &uid})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // conflict: another of its name
		return fmt.Errorf("delete %T %s: %w", o, o.GetName(), err)
	}
	return nil
}
