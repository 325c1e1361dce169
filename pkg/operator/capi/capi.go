// Package capi has the conventions of Cluster API's objects: names, labels, owners and
// pausing.
package capi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldOwner owns the fields that the operator applies.
const FieldOwner = client.FieldOwner("nstance-operator")

// movedAnnotation is set by clusterctl before it deletes an object that it has copied to
// another management cluster.
const movedAnnotation = "clusterctl.cluster.x-k8s.io/delete-for-move"

// ClusterName returns the name of the Cluster for one tenant of a cluster.
func ClusterName(cluster, tenant string) string { return cluster + "--" + tenant }

// ShardGroupName returns the name of the NstanceShardGroup of a group on a shard.
func ShardGroupName(group, shard string) string { return group + "--" + shard }

// KubeconfigName returns the name of the Secret in which Cluster API looks for a workload
// cluster's kubeconfig.
func KubeconfigName(cluster string) string { return cluster + "-kubeconfig" }

// Cache limits a manager's cache of Secrets to the kubeconfig of a cluster, the only one that
// the operator may list.
func Cache(cluster string) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Field: fields.OneTermEqualSelector("metadata.name", KubeconfigName(cluster))},
	}
}

// OwnerMachine returns the Machine whose infrastructure an object is; nil if none is named yet
// or it is gone.
func OwnerMachine(ctx context.Context, c client.Reader, o metav1.Object) (*clusterv1.Machine, error) {
	var m clusterv1.Machine
	if found, err := owner(ctx, c, o, "Machine", &m); !found {
		return nil, err
	}
	return &m, nil
}

// MachineFor returns the Machine whose infrastructure an object of a kind is: the one that owns it,
// or, since Cluster API sets the owner reference of a pool's machine only a moment after it has
// created the Machine, one of its name that refers to it; nil if there is none.
func MachineFor(ctx context.Context, c client.Reader, o metav1.Object, kind schema.GroupKind) (*clusterv1.Machine, error) {
	if owner, err := OwnerMachine(ctx, c, o); err != nil || owner != nil {
		return owner, err
	}
	var m clusterv1.Machine
	err := c.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetName()}, &m)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // documented
	}
	if err != nil || !RefersTo(&m, kind, o.GetName()) {
		return nil, err
	}
	return &m, nil
}

// RefersTo reports whether a Machine's infrastructure is the object of that kind and name.
func RefersTo(m *clusterv1.Machine, kind schema.GroupKind, name string) bool {
	ref := m.Spec.InfrastructureRef
	return ref.APIGroup == kind.Group && ref.Kind == kind.Kind && ref.Name == name
}

// OwnerMachinePool returns the MachinePool whose infrastructure an object is; nil if none is
// named yet or it is gone.
func OwnerMachinePool(ctx context.Context, c client.Reader, o metav1.Object) (*clusterv1.MachinePool, error) {
	var p clusterv1.MachinePool
	if found, err := owner(ctx, c, o, "MachinePool", &p); !found {
		return nil, err
	}
	return &p, nil
}

// Cluster returns the Cluster that an object's label names; nil if there is none.
func Cluster(ctx context.Context, c client.Reader, o metav1.Object) (*clusterv1.Cluster, error) {
	name := o.GetLabels()[clusterv1.ClusterNameLabel]
	if name == "" {
		return nil, nil //nolint:nilnil // documented
	}
	var cluster clusterv1.Cluster
	err := c.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: name}, &cluster)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // documented
	}
	if err != nil {
		return nil, err
	}
	return &cluster, nil
}

// Leaving reports whether a Cluster is being deleted, or is gone (nil). A Cluster from a cache may
// be older than the object whose deletion follows from its own: before something is deleted that
// stays with a leaving Cluster, the Cluster has to be read uncached.
func Leaving(cluster *clusterv1.Cluster) bool {
	return cluster == nil || !cluster.DeletionTimestamp.IsZero()
}

// Paused reports whether an object must be left alone: its Cluster or the object itself is
// paused, or it was moved to another management cluster and is only being deleted here.
// Without a Cluster only the object's own annotations count: after a move by clusterctl, the
// Cluster may be deleted first.
func Paused(cluster *clusterv1.Cluster, o metav1.Object) bool {
	if cluster != nil && cluster.Spec.Paused != nil && *cluster.Spec.Paused {
		return true
	}
	_, paused := o.GetAnnotations()[clusterv1.PausedAnnotation]
	_, moved := o.GetAnnotations()[movedAnnotation]
	return paused || moved && !o.GetDeletionTimestamp().IsZero()
}

// owner reads o's owner of the given kind of Cluster API's core, if o names one.
func owner(ctx context.Context, c client.Reader, o metav1.Object, kind string, into client.Object) (found bool, err error) {
	for _, ref := range o.GetOwnerReferences() {
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err != nil || gv.Group != clusterv1.GroupVersion.Group || ref.Kind != kind {
			continue
		}
		err = c.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: ref.Name}, into)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	}
	return false, nil
}

// Locked returns a merge patch from an object as it was read. It conflicts if the object has
// changed since.
func Locked(read client.Object) client.Patch {
	return client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{})
}

// SkipDrain lets Cluster API delete a Machine whose instance is gone without a drain, and without
// waiting for volumes that nothing there detaches any more. A Machine that is gone is no error.
func SkipDrain(ctx context.Context, api client.Writer, m *clusterv1.Machine) error {
	to := m.DeepCopy()
	for _, key := range []string{clusterv1.ExcludeNodeDrainingAnnotation, clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation} {
		if _, set := to.Annotations[key]; !set {
			metav1.SetMetaDataAnnotation(&to.ObjectMeta, key, "")
		}
	}
	if len(to.Annotations) == len(m.Annotations) {
		return nil
	}
	if err := api.Patch(ctx, to, client.MergeFrom(m), FieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("exclude Machine %s from draining: %w", m.Name, err)
	}
	return nil
}
