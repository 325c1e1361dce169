package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
)

// The Cluster Autoscaler reads a machine's capacity and architecture from the pool's
// status.capacity and status.nodeInfo. The nodes' labels and taints, which it needs to scale
// from zero, it reads from these annotations of the MachinePool.
const (
	templateLabels = "capacity.cluster-autoscaler.kubernetes.io/labels"
	templateTaints = "capacity.cluster-autoscaler.kubernetes.io/taints"
)

// templateOwners returns a field owner for each annotation. One owner for both would drop one
// annotation by applying only the other, and a conflict on one must not prevent applying the
// other.
func templateOwners() map[string]client.FieldOwner {
	return map[string]client.FieldOwner{templateLabels: capi.FieldOwner + "-labels", templateTaints: capi.FieldOwner + "-taints"}
}

// syncTemplate applies annotations that differ, except those that another owner has set.
func (r *Reconciler) syncTemplate(ctx context.Context, s *scope) error {
	if !s.scalable() {
		return nil
	}
	want := template(&s.pool.Spec)
	var errs []error
	for key, by := range templateOwners() {
		value, wanted := want[key]
		if has, is := s.owner.Annotations[key]; is == wanted && has == value || is && !mayOwn(s.owner, by) {
			continue
		}
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachinePool"))
		o.SetNamespace(s.owner.Namespace)
		o.SetName(s.owner.Name)
		o.SetUID(s.owner.UID) // so that a deleted MachinePool is not created again
		if wanted {
			o.SetAnnotations(map[string]string{key: value})
		}
		err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), by)
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("annotate the MachinePool with %s: %w", key, err))
		}
	}
	return errors.Join(errs...)
}

// mayOwn reports whether the owner has applied something, or the cache does not show managed
// fields.
func mayOwn(o client.Object, by client.FieldOwner) bool {
	fields := o.GetManagedFields()
	return len(fields) == 0 || slices.ContainsFunc(fields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == string(by) })
}

// template returns the annotations that describe a pool's nodes.
func template(spec *v1beta1.NstanceMachinePoolSpec) map[string]string {
	want := map[string]string{}
	var labels, taints []string
	for _, key := range slices.Sorted(maps.Keys(spec.NodeLabels)) {
		labels = append(labels, key+"="+spec.NodeLabels[key])
	}
	for _, t := range spec.NodeTaints {
		taints = append(taints, t.Key+"="+t.Value+":"+string(t.Effect))
	}
	slices.Sort(taints)
	if len(labels) > 0 {
		want[templateLabels] = strings.Join(labels, ",")
	}
	if len(taints) > 0 {
		want[templateTaints] = strings.Join(taints, ",")
	}
	return want
}
