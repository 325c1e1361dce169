package problems

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/shards"
)

// concerned returns the objects for a problem's events: the instance's machine, or else its
// group; the group's objects; or else those of the whole cluster.
func (r *Reporter) concerned(ctx context.Context, e shards.Event) ([]client.Object, error) {
	machines, err := r.machines(ctx, e.Problem.GetInstanceId())
	if err != nil {
		return nil, err
	}
	group := e.Problem.GetGroup()
	switch noCapacity := r.noCapacity(e); {
	case group == "" && len(machines) == 0:
		return r.cluster(ctx)
	case group == "", len(machines) > 0 && !noCapacity:
		return machines, nil
	}
	objects, err := r.ofGroup(ctx, e)
	return slices.Concat(machines, objects), err
}

func (r *Reporter) machines(ctx context.Context, instance string) (out []client.Object, err error) {
	if instance == "" {
		return nil, nil
	}
	var all v1beta1.NstanceMachineList
	if err := r.Client.List(ctx, &all, client.InNamespace(r.Namespace), client.MatchingFields{indexInstance: instance}); err != nil {
		return nil, err
	}
	for n := range all.Items {
		out = append(out, &all.Items[n])
	}
	return out, nil
}

// ofGroup returns a group's objects: its NstanceShardGroup, its pool, and, if there is no
// capacity, the MachinePool, where users look first.
func (r *Reporter) ofGroup(ctx context.Context, e shards.Event) (out []client.Object, err error) {
	group := e.Problem.GetGroup()
	var part v1beta1.NstanceShardGroup
	switch found, err := r.get(ctx, capi.ShardGroupName(group, e.Shard), &part); {
	case err != nil:
		return nil, err
	case found:
		out = append(out, &part)
	}
	var pools v1beta1.NstanceMachinePoolList
	if err := r.Client.List(ctx, &pools, client.InNamespace(r.Namespace)); err != nil {
		return nil, err
	}
	for n := range pools.Items {
		pool := &pools.Items[n]
		if string(pool.Spec.Group) != group || !slices.Contains(pool.Spec.Shards, v1beta1.Name(e.Shard)) {
			continue
		}
		out = append(out, pool)
		if !r.noCapacity(e) {
			continue
		}
		switch owner, err := capi.OwnerMachinePool(ctx, r.Client, pool); {
		case err != nil:
			return nil, err
		case owner != nil:
			out = append(out, owner)
		}
	}
	return out, nil
}

func (r *Reporter) cluster(ctx context.Context) ([]client.Object, error) {
	var c v1beta1.NstanceCluster
	if found, err := r.get(ctx, r.Cluster, &c); !found {
		return nil, err
	}
	return []client.Object{&c}, nil
}

func (r *Reporter) get(ctx context.Context, name string, into client.Object) (found bool, err error) {
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// Workload finds pods of a workload cluster.
type Workload struct {
	// Reader reads uncached: only the API server can select pods without a node, without
	// caching all pods here.
	Reader client.Reader
	// EventRecorder records in the workload cluster.
	events.EventRecorder
}

// Waiting implements Pods.
func (w Workload) Waiting(ctx context.Context, group string) (out []client.Object, err error) {
	all := metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := w.Reader.List(ctx, &all, client.MatchingFields{"spec.nodeName": ""}); err != nil {
		return nil, err
	}
	for n := range all.Items {
		pod := &all.Items[n]
		if pod.Annotations[v1beta1.AnnotationOnDemandGroup] == group && pod.DeletionTimestamp.IsZero() {
			pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
			out = append(out, pod)
		}
	}
	return out, nil
}
