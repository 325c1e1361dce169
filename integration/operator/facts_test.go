//go:build integration

package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/planetest"
)

// The tests here check assumptions of the operator that Cluster API's book does not state, or
// states differently. A failure with a newer core shows what to change.

// A pool is provisioned by status.ready alone, and its list of ids decides which nodes it has: a
// node that is not in it loses its Node at once, even with pods.
func TestAPoolsListDecidesWhichNodesThereAre(t *testing.T) {
	plane := shared.Plane(t)
	ns, name := plane.Namespace(t), "prod--default"
	makeCluster(t, plane, ns, name, true)
	first := makeNode(t, plane, ns+"-1", "docker:///"+ns+"-1")
	second := makeNode(t, plane, ns+"-2", "docker:///"+ns+"-2")
	pool, infra := makePool(t, plane, ns, name, 2, first, second)

	infra.Status.Initialization.Provisioned = new(true)
	infra.Status.Replicas = new(int32(2))
	writeStatus(t, plane, infra)
	planetest.Eventually(t, soon, "Cluster API takes the pool", func(ctx context.Context) error {
		err := errors.Join(
			plane.Client.Get(ctx, client.ObjectKeyFromObject(infra), infra), plane.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool))
		if err == nil && (!metav1.IsControlledBy(infra, pool) || pool.Status.Phase != string(clusterv1.MachinePoolPhaseProvisioning)) {
			err = fmt.Errorf("owned by %v, phase %s", infra.OwnerReferences, pool.Status.Phase)
		}
		return err
	})
	planetest.Consistently(t, 3*time.Second, "provisioned is not enough", func(ctx context.Context) error {
		err := plane.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool)
		if err == nil && (pool.Status.Phase != string(clusterv1.MachinePoolPhaseProvisioning) || len(pool.Spec.ProviderIDList) != 0) {
			err = fmt.Errorf("phase %s, ids %v", pool.Status.Phase, pool.Spec.ProviderIDList)
		}
		return err
	})

	infra.Status.Ready = new(true)
	writeStatus(t, plane, infra)
	planetest.Eventually(t, soon, "the pool runs", func(ctx context.Context) error {
		err := plane.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool)
		if err == nil && (pool.Status.Phase != string(clusterv1.MachinePoolPhaseRunning) || len(pool.Status.NodeRefs) != 2) {
			err = fmt.Errorf("phase %s, nodes %v, %s", pool.Status.Phase, pool.Status.NodeRefs, told(pool.Status.Conditions))
		}
		return err
	})

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "on-it"},
		Spec:       corev1.PodSpec{NodeName: first.Name, Containers: []corev1.Container{{Name: "one", Image: "one"}}},
	}
	if err := plane.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	planetest.Eventually(t, soon, "the list is shorter", func(ctx context.Context) error {
		if err := plane.Client.Get(ctx, client.ObjectKeyFromObject(infra), infra); err != nil {
			return err
		}
		infra.Spec.ProviderIDList = []string{second.Spec.ProviderID}
		return plane.Client.Update(ctx, infra)
	})
	planetest.Eventually(t, soon, "the Node is gone", func(ctx context.Context) error {
		if err := plane.Client.Get(ctx, client.ObjectKeyFromObject(first), &corev1.Node{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return plane.Client.Get(ctx, client.ObjectKeyFromObject(second), &corev1.Node{})
	})
}

// Without an object for the control plane a Machine's node is ignored, and is not deleted with its
// Machine.
func TestWithoutAControlPlaneNodesAreNobodys(t *testing.T) {
	plane := shared.Plane(t)
	ns, name := plane.Namespace(t), "prod--default"
	makeCluster(t, plane, ns, name, false)
	node := makeNode(t, plane, ns+"-1", "docker:///"+ns+"-1")
	machine := makeMachine(t, plane, ns, name, node.Spec.ProviderID)
	planetest.Eventually(t, soon, "the Machine has its node", func(ctx context.Context) error {
		err := plane.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine)
		if err == nil && machine.Status.NodeRef.Name != node.Name {
			err = fmt.Errorf("phase %s, %s", machine.Status.Phase, told(machine.Status.Conditions))
		}
		return err
	})
	planetest.Consistently(t, 3*time.Second, "the Node is not looked at", func(ctx context.Context) error {
		err := plane.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine)
		if err == nil && is(machine.Status.Conditions, clusterv1.MachineNodeHealthyCondition) {
			err = fmt.Errorf("NodeHealthy is true in phase %s", machine.Status.Phase)
		}
		return err
	})
	if err := plane.Client.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	planetest.Eventually(t, soon, "the Machine goes", func(ctx context.Context) error {
		if err := plane.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there, %s: %w", told(machine.Status.Conditions), err)
		}
		return nil
	})
	if err := plane.Client.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
		t.Errorf("the Node: %v", err)
	}
}

// Infrastructure with its own bootstrap data has to declare that, by an empty name.
func TestNoBootstrapDataHasToBeSaid(t *testing.T) {
	plane := shared.Plane(t)
	ns := plane.Namespace(t)
	for _, o := range []func(name *string) client.Object{
		func(name *string) client.Object {
			m := newMachine(ns, "prod--default")
			m.Spec.Bootstrap.DataSecretName = name
			return m
		},
		func(name *string) client.Object {
			p := newPool(ns, "prod--default", 1)
			p.Spec.Template.Spec.Bootstrap.DataSecretName = name
			return p
		},
	} {
		err := plane.Client.Create(t.Context(), o(nil), client.DryRunAll)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.bootstrap: Required") {
			t.Errorf("%T without it: %v", o(nil), err)
		}
		if err := plane.Client.Create(t.Context(), o(new("")), client.DryRunAll); err != nil {
			t.Errorf("%T with an empty one: %v", o(nil), err)
		}
	}
}

func newPool(ns, cluster string, replicas int32) *clusterv1.MachinePool {
	pool := &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}}
	pool.Spec.ClusterName, pool.Spec.Replicas = cluster, new(replicas)
	pool.Spec.Template.Spec = clusterv1.MachineSpec{
		ClusterName:       cluster,
		Bootstrap:         clusterv1.Bootstrap{DataSecretName: new("")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.Group, Kind: "NstanceMachinePool", Name: "web"},
	}
	return pool
}

// makePool creates a pool of these nodes, without status.
func makePool(
	t *testing.T, plane *planetest.Plane, ns, cluster string, replicas int32, nodes ...*corev1.Node,
) (*clusterv1.MachinePool, *v1beta1.NstanceMachinePool) {
	t.Helper()
	pool := newPool(ns, cluster, replicas)
	infra := &v1beta1.NstanceMachinePool{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec:       v1beta1.NstanceMachinePoolSpec{Group: "web", Shards: []v1beta1.Name{"one"}},
	}
	for _, node := range nodes {
		infra.Spec.ProviderIDList = append(infra.Spec.ProviderIDList, node.Spec.ProviderID)
	}
	for _, o := range []client.Object{infra, pool} {
		if err := plane.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	return pool, infra
}
