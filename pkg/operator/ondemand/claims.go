package ondemand

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// claim holds the objects created for a pod; each may be nil.
type claim struct {
	machine        *clusterv1.Machine
	infrastructure *v1beta1.NstanceMachine
}

// step is the next step for a claim.
type step int

const (
	nothing step = iota
	makeBoth
	makeMachine
	makeInfrastructure
	// unmake: delete the leftovers of something that is gone. Both objects are created again
	// afterwards.
	unmake
)

// next returns the step for the claim of an existing pod. While one object is being deleted,
// the other must not be created: it would count as a part of the old claim.
func (c claim) next() step {
	m, i := c.machine, c.infrastructure
	switch {
	case m != nil && !m.DeletionTimestamp.IsZero(), i != nil && !i.DeletionTimestamp.IsZero():
		return nothing
	case m == nil && i == nil:
		return makeBoth
	case m == nil && len(i.OwnerReferences) > 0:
		return unmake // it had a Machine
	case m == nil:
		return makeMachine
	case i == nil && m.Spec.ProviderID != "":
		return unmake // it had an unknown instance
	case i == nil:
		return makeInfrastructure
	}
	return nothing
}

// object is the claim's Machine, or else its NstanceMachine; nil if it has neither.
func (c claim) object() client.Object {
	switch {
	case c.machine != nil:
		return c.machine
	case c.infrastructure != nil:
		return c.infrastructure
	}
	return nil
}

// owner is the pod that has the claim: the Machine decides, since it is handed over first.
func (c claim) owner() types.UID { return ownerOf(c.object()) }

func (c claim) group() string { return c.object().GetLabels()[v1beta1.LabelGroup] }

// name is that of both objects; empty if there is none.
func (c claim) name() string {
	if o := c.object(); o != nil {
		return o.GetName()
	}
	return ""
}

// whole reports whether both objects exist and stay.
func (c claim) whole() bool {
	return c.machine != nil && c.infrastructure != nil && c.machine.DeletionTimestamp.IsZero() && c.infrastructure.DeletionTimestamp.IsZero()
}

func ownerOf(o metav1.Object) types.UID { return types.UID(o.GetLabels()[LabelPodUID]) }

// claims returns the claims of the pods of a name, by UID: complete and older ones first. Few
// pods have more than one, for a moment, after a machine was handed over to them.
func (r *Reconciler) claims(ctx context.Context, pod types.NamespacedName) (map[types.UID][]claim, error) {
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
	byName := map[string]claim{}
	for i := range machines.Items {
		if key, _ := podOf(&machines.Items[i]); key == pod {
			byName[machines.Items[i].Name] = claim{machine: &machines.Items[i]}
		}
	}
	for i := range infrastructures.Items {
		m := &infrastructures.Items[i]
		c, has := byName[m.Name]
		key, _ := podOf(m)
		switch {
		case has: // also if it has not been handed over yet
			c.infrastructure = m
			byName[m.Name] = c
		case key == pod && !slices.ContainsFunc(machines.Items, func(o clusterv1.Machine) bool { return o.Name == m.Name }):
			byName[m.Name] = claim{infrastructure: m}
		}
	}
	return byOwner(byName), nil
}

func byOwner(claims map[string]claim) map[types.UID][]claim {
	all := map[types.UID][]claim{}
	for _, c := range claims {
		all[c.owner()] = append(all[c.owner()], c)
	}
	for _, of := range all {
		slices.SortFunc(of, func(a, b claim) int {
			return cmp.Or(yes(b.whole())-yes(a.whole()),
				a.object().GetCreationTimestamp().Compare(b.object().GetCreationTimestamp().Time), cmp.Compare(a.name(), b.name()))
		})
	}
	return all
}

// unmake deletes the leftovers of a claim, unless the Machine exists after all and the cache
// is stale.
func (r *Reconciler) unmake(ctx context.Context, c claim) error {
	if o := c.object(); o == nil || o.GetDeletionTimestamp() != nil {
		return nil
	}
	if c.machine == nil {
		err := r.Reader.Get(ctx, client.ObjectKeyFromObject(c.infrastructure), &clusterv1.Machine{})
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return r.drop(ctx, c)
}

// drop deletes a claim: its Machine, which takes the rest along, or what exists without one.
func (r *Reconciler) drop(ctx context.Context, c claim) error {
	o := c.object()
	if o == nil || o.GetDeletionTimestamp() != nil {
		return nil
	}
	uid := o.GetUID()
	err := r.Client.Delete(ctx, o, client.Preconditions{UID: &uid})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // conflict: another object of its name
		return fmt.Errorf("delete %T %s: %w", o, o.GetName(), err)
	}
	return nil
}
