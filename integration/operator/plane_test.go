//go:build integration

// Package operator runs the operator's stories on a whole control plane: a real API server, Cluster
// API's own controllers, Kubernetes' own, and nodes simulated by kwok.
package operator

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/planetest"
)

var shared planetest.SharedCore

func TestMain(m *testing.M) { shared.Main(m, rights) }

// soon bounds what Cluster API does by itself; it polls every few seconds.
const soon = 3 * time.Minute

// What Cluster API's core reads of the provider's kinds: the Cluster is provisioned and available,
// a Machine runs on the node with its id, and the node is deleted with it.
func TestCoreReadsTheProvidersKinds(t *testing.T) {
	plane := shared.Plane(t)
	ns, name := plane.Namespace(t), "prod--default"
	makeCluster(t, plane, ns, name, true)
	planetest.Eventually(t, soon, "the Cluster is available", func(ctx context.Context) error {
		var c clusterv1.Cluster
		if err := plane.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &c); err != nil {
			return err
		}
		if c.Status.Phase != string(clusterv1.ClusterPhaseProvisioned) || !is(c.Status.Conditions, clusterv1.ClusterAvailableCondition) {
			return fmt.Errorf("phase %s, %s", c.Status.Phase, told(c.Status.Conditions))
		}
		return nil
	})

	node := makeNode(t, plane, ns+"-1", "docker:///"+ns+"-1")
	machine := makeMachine(t, plane, ns, name, node.Spec.ProviderID)
	planetest.Eventually(t, soon, "the Machine runs", func(ctx context.Context) error {
		if err := plane.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine); err != nil {
			return err
		}
		if machine.Status.Phase != string(clusterv1.MachinePhaseRunning) || machine.Status.NodeRef.Name != node.Name {
			return fmt.Errorf("phase %s, node %s, %s", machine.Status.Phase, machine.Status.NodeRef.Name, told(machine.Status.Conditions))
		}
		return nil
	})

	planetest.Eventually(t, soon, "the Machine's node is healthy", func(ctx context.Context) error {
		err := plane.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine)
		if err == nil && !is(machine.Status.Conditions, clusterv1.MachineNodeHealthyCondition) {
			err = fmt.Errorf("%s", told(machine.Status.Conditions))
		}
		return err
	})
	if err := plane.Client.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	planetest.Eventually(t, soon, "the Machine and its Node are gone", func(ctx context.Context) error {
		for _, o := range []client.Object{machine.DeepCopy(), node.DeepCopy()} {
			if err := plane.Client.Get(ctx, client.ObjectKeyFromObject(o), o); client.IgnoreNotFound(err) != nil {
				return err
			} else if err == nil {
				return fmt.Errorf("%T %s is there", o, o.GetName())
			}
		}
		return nil
	})
}

// makeCluster creates a Cluster of the provider's kinds, whose API server is the test's own, with
// or without an object for its control plane.
func makeCluster(t *testing.T, plane *planetest.Plane, ns, name string, controlPlane bool) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: ns, Name: name}
	infra := &v1beta1.NstanceCluster{ObjectMeta: meta}
	infra.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 6443}
	control := &v1beta1.NstanceControlPlane{ObjectMeta: meta}
	cluster := &clusterv1.Cluster{ObjectMeta: meta}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.Group, Kind: "NstanceCluster", Name: name}
	if controlPlane {
		cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: v1beta1.Group, Kind: "NstanceControlPlane", Name: name,
		}
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: plane.Config.Host, CertificateAuthorityData: plane.Config.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: plane.Config.CertData, ClientKeyData: plane.Config.KeyData}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: capi.KubeconfigName(name), Labels: map[string]string{clusterv1.ClusterNameLabel: name},
		},
		Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": kubeconfig},
	}
	for _, o := range []client.Object{infra, control, secret, cluster} {
		if err := plane.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	infra.Status = v1beta1.NstanceClusterStatus{Initialization: v1beta1.Initialization{Provisioned: new(true)}, Ready: new(true)}
	control.Status = v1beta1.NstanceControlPlaneStatus{
		Initialization:              v1beta1.ControlPlaneInitialization{ControlPlaneInitialized: new(true)},
		ExternalManagedControlPlane: new(true),
	}
	writeStatus(t, plane, infra)
	writeStatus(t, plane, control)
}

// makeNode creates a Node, which kwok then makes Ready.
func makeNode(t *testing.T, plane *planetest.Plane, name, providerID string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Spec:       corev1.NodeSpec{ProviderID: providerID},
	}
	if err := plane.Client.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plane.Client.Delete(context.Background(), node) })
	return node
}

func newMachine(ns, cluster string) *clusterv1.Machine {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "one"}}
	machine.Spec.ClusterName = cluster
	machine.Spec.Bootstrap.DataSecretName = new("")
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.Group, Kind: "NstanceMachine", Name: "one"}
	return machine
}

// makeMachine creates a Machine with an instance of this id.
func makeMachine(t *testing.T, plane *planetest.Plane, ns, cluster, providerID string) *clusterv1.Machine {
	t.Helper()
	machine := newMachine(ns, cluster)
	infra := &v1beta1.NstanceMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "one"}, Spec: v1beta1.NstanceMachineSpec{Group: "web", ProviderID: providerID},
	}
	for _, o := range []client.Object{infra, machine} {
		if err := plane.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	infra.Status.Initialization.Provisioned = new(true)
	writeStatus(t, plane, infra)
	return machine
}

// writeStatus writes a status, with retries after Cluster API's own writes.
func writeStatus(t *testing.T, plane *planetest.Plane, o client.Object) {
	t.Helper()
	o.SetResourceVersion("")
	none := o.DeepCopyObject().(client.Object)
	switch none := none.(type) {
	case *v1beta1.NstanceCluster:
		none.Status = v1beta1.NstanceClusterStatus{}
	case *v1beta1.NstanceControlPlane:
		none.Status = v1beta1.NstanceControlPlaneStatus{}
	case *v1beta1.NstanceMachine:
		none.Status = v1beta1.NstanceMachineStatus{}
	case *v1beta1.NstanceMachinePool:
		none.Status = v1beta1.NstanceMachinePoolStatus{}
	}
	if err := plane.Client.Status().Patch(t.Context(), o, client.MergeFrom(none)); err != nil {
		t.Fatal(err)
	}
}

func is(conditions []metav1.Condition, kind string) bool {
	for _, c := range conditions {
		if c.Type == kind {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

// told lists the conditions that are not true, with their reasons.
func told(conditions []metav1.Condition) (all []string) {
	for _, c := range conditions {
		if c.Status != metav1.ConditionTrue {
			all = append(all, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
	}
	return all
}
