// Package capi knows how the objects of Cluster API hang together: names, labels,
// owners, and what pauses them.
package capi

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldOwner owns the fields that the operator applies.
const FieldOwner = client.FieldOwner("nstance-operator")

// movedAnnotation is what clusterctl puts on an object before it deletes it here, where
// another management cluster has it by then.
const movedAnnotation = "clusterctl.cluster.x-k8s.io/delete-for-move"

// ClusterName is the name of the Cluster that stands for one tenant of a cluster.
func ClusterName(cluster, tenant string) string { return cluster + "--" + tenant }

// ShardGroupName is the name of the NstanceShardGroup of a group on a shard.
func ShardGroupName(group, shard string) string { return group + "--" + shard }

// KubeconfigName is the name of the Secret in which Cluster API finds its way to a
// workload cluster.
func KubeconfigName(cluster string) string { return cluster + "-kubeconfig" }

// OwnerMachine returns the Machine that an object is the infrastructure of; nil: none
// is named yet, or it is gone.
func OwnerMachine(ctx context.Context, c client.Reader, o metav1.Object) (*clusterv1.Machine, error) {
	var m clusterv1.Machine
	if found, err := owner(ctx, c, o, "Machine", &m); !found {
		return nil, err
	}
	return &m, nil
}

// OwnerMachinePool returns the MachinePool that an object is the infrastructure of;
// nil: none is named yet, or it is gone.
func OwnerMachinePool(ctx context.Context, c client.Reader, o metav1.Object) (*clusterv1.MachinePool, error) {
	var p clusterv1.MachinePool
	if found, err := owner(ctx, c, o, "MachinePool", &p); !found {
		return nil, err
	}
	return &p, nil
}

// Cluster returns the Cluster that an object's label names; nil: there is none.
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

// Paused reports whether nothing is to be done for an object: its Cluster is paused, or
// it is itself, or it is deleted here and lives on elsewhere. Without a Cluster only the
// object's own annotations count: of what clusterctl has moved, the Cluster may be seen
// to go first.
func Paused(cluster *clusterv1.Cluster, o metav1.Object) bool {
	if cluster != nil && cluster.Spec.Paused != nil && *cluster.Spec.Paused {
		return true
	}
	_, paused := o.GetAnnotations()[clusterv1.PausedAnnotation]
	_, moved := o.GetAnnotations()[movedAnnotation]
	return paused || moved && !o.GetDeletionTimestamp().IsZero()
}

// owner reads the owner of a kind of Cluster API's core, if o names one.
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

// Locked is the patch from an object as it was read. It is refused with a conflict when
// somebody has changed the object since.
func Locked(read client.Object) client.Patch {
	return client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{})
}
