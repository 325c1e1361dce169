//go:build integration

package operator

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/planetest"
)

// TestMove: clusterctl moves a tenant from a management cluster into the cluster of its nodes.
// Every object is moved, none stays, no instance is created or deleted; and the operator there
// adopts what it finds, although status and UIDs are lost. The other operator runs until all
// objects are gone, without effect; then it can be removed.
func TestMove(t *testing.T) {
	to := newFixtureAlone(t)
	from := to.management()
	from.operate()
	from.running("web", 4)
	from.available()
	from.onNodes("web", 4)
	objects, instances := from.kinds(), to.ids()

	from.moves(to, objects)
	from.operator.kill(syscall.SIGTERM)

	to.operate()
	to.running("web", 4)
	to.available()
	to.onNodes("web", 4)
	if have := to.ids(); !maps.Equal(have, instances) {
		t.Errorf("instances %v\nwant      %v", have, instances)
	}
	if have := to.kinds(); !slices.Equal(have, objects) {
		t.Errorf("afterwards %v\nwant       %v", have, objects)
	}
	to.scale("web", 5)
	to.running("web", 5)
	from.kubectl("delete", "--timeout=1m", "-k", from.temp)
	if err := from.api.List(t.Context(), &v1beta1.NstanceClusterList{}); !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		t.Errorf("the kinds are still there: %v", err)
	}
}

// TestMoveOut: the other way, from a self-managed cluster to a management cluster outside, with a
// kubeconfig that is put there.
func TestMoveOut(t *testing.T) {
	from := newFixtureAlone(t)
	from.operate()
	from.running("web", 4)
	from.available()
	from.onNodes("web", 4)
	objects, instances := from.kinds(), from.ids()

	to := from.management()
	from.moves(to, objects)
	from.operator.kill(syscall.SIGTERM)
	way := from.way()
	patch := client.RawPatch(clusterMerge, fmt.Appendf(nil, `{"data":{"value":%q}}`, base64.StdEncoding.EncodeToString(way.Data["value"])))
	if err := to.api.Patch(t.Context(), way, patch); err != nil {
		t.Fatal(err)
	}
	to.operate()
	to.running("web", 4)
	to.available()
	to.onNodes("web", 4)
	if have := to.ids(); !maps.Equal(have, instances) {
		t.Errorf("instances %v\nwant      %v", have, instances)
	}
	to.scale("web", 3)
	to.running("web", 3)
}

// moves makes clusterctl move all of a tenant's objects.
func (f *fixture) moves(to *fixture, objects []string) {
	f.Helper()
	began := time.Now()
	clusterctl(f.T, f.bin, "move", "--namespace", f.namespace,
		"--kubeconfig", filepath.Join(f.temp, "kubeconfig"), "--to-kubeconfig", filepath.Join(to.temp, "kubeconfig"))
	f.Logf("moved %d objects in %v", len(objects), time.Since(began).Round(time.Second))
	if left := f.kinds(); len(left) > 0 {
		f.Errorf("left behind: %v", left)
	}
	if moved := to.kinds(); !slices.Equal(moved, objects) {
		f.Errorf("moved %v\nwant  %v", moved, objects)
	}
}

// way returns the Secret with an administrator's kubeconfig for the cluster of the nodes.
func (f *fixture) way() *corev1.Secret {
	way := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: capi.KubeconfigName(clusterName)}}
	way.Type, way.Labels = clusterv1.ClusterSecretType, map[string]string{clusterv1.ClusterNameLabel: clusterName}
	way.Data = map[string][]byte{"value": f.plane.Kubeconfig()}
	return way
}

// management is another cluster with Cluster API and an operator, whose instances' nodes are in f's
// cluster.
func (f *fixture) management() *fixture {
	f.Helper()
	plane := planetest.Core(f.T)
	m := &fixture{
		T: f.T, plane: plane, api: plane.Client, namespace: f.namespace,
		bin: f.bin, temp: f.TempDir(), env: f.env, config: f.config, waits: f.waits,
	}
	m.write("kubeconfig", plane.Kubeconfig())
	m.write(filepath.Join("logs", "operator.log"), nil)
	m.install()
	m.vars = []string{"NSTANCE_CAPI_ENDPOINT=" + f.plane.Config.Host}
	var ca corev1.ConfigMap
	if err := f.get(f.Context(), "nstance-cluster-ca", &ca); err != nil {
		f.Fatal(err)
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: m.namespace, Name: name} }
	for _, o := range []client.Object{
		f.way(), &corev1.ConfigMap{ObjectMeta: named(ca.Name), Data: ca.Data},
		&corev1.Secret{ObjectMeta: named("nstance-operator-nonce"), Data: map[string][]byte{"nonce.jwt": m.admin("cluster", "nonce")}},
	} {
		if err := m.api.Create(m.Context(), o); err != nil {
			m.Fatal(err)
		}
	}
	return m
}

// install applies config/default, and configures the operator as its pod would be, since no
// Deployments run here.
func (f *fixture) install() {
	f.Helper()
	base, err := filepath.Rel(f.temp, filepath.Join(root(f.T), "config", "default"))
	if err != nil {
		f.Fatal(err)
	}
	f.write("kustomization.yaml", []byte("namespace: "+f.namespace+"\nresources: ["+base+"]\n"))
	f.kubectl("apply", "-k", f.temp)
	f.token("nstance-operator")
}

// token makes the operator use a ServiceAccount, with a token as in its pod.
func (f *fixture) token(account string) {
	f.Helper()
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: account}}
	var request authenticationv1.TokenRequest
	if err := f.api.SubResource("token").Create(f.Context(), of, &request); err != nil {
		f.Fatal(err)
	}
	config, err := clientcmd.Load(f.plane.Kubeconfig())
	if err != nil {
		f.Fatal(err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	}
	text, err := clientcmd.Write(*config)
	if err != nil {
		f.Fatal(err)
	}
	f.write("operator.kubeconfig", text)
}

func (f *fixture) kubectl(args ...string) {
	f.Helper()
	f.run(filepath.Join(planetest.Folder(f.T), "kubectl"), append(args, "--kubeconfig", filepath.Join(f.temp, "kubeconfig"))...)
}

// onNodes waits until every machine of a pool has its node; before, clusterctl refuses to move.
func (f *fixture) onNodes(pool string, replicas int) {
	f.Helper()
	f.eventually("each Machine has a node", func(ctx context.Context) error {
		machines, err := f.machines(ctx, pool)
		if err != nil || len(machines) != replicas {
			return fmt.Errorf("%d machines: %w", len(machines), err)
		}
		for _, m := range machines {
			if m.Status.NodeRef.Name == "" {
				return fmt.Errorf("machine %s has none", m.Name)
			}
		}
		return nil
	})
}

// kinds returns the objects of Cluster API and of the provider, by kind and name.
func (f *fixture) kinds() (names []string) {
	f.Helper()
	for _, gvk := range []schema.GroupVersionKind{
		clusterv1.GroupVersion.WithKind("Cluster"), clusterv1.GroupVersion.WithKind("MachinePool"), clusterv1.GroupVersion.WithKind("Machine"),
		v1beta1.GroupVersion().WithKind("NstanceCluster"), v1beta1.GroupVersion().WithKind("NstanceControlPlane"),
		v1beta1.GroupVersion().WithKind("NstanceMachinePool"), v1beta1.GroupVersion().WithKind("NstanceShardGroup"),
		v1beta1.GroupVersion().WithKind("NstanceMachine"),
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		if err := f.api.List(f.Context(), list, client.InNamespace(f.namespace)); err != nil {
			f.Fatal(err)
		}
		for _, o := range list.Items {
			names = append(names, gvk.Kind+" "+o.GetName())
		}
	}
	slices.Sort(names)
	return names
}

// ids returns all present and past instances, with their phases.
func (f *fixture) ids() map[string]string {
	f.Helper()
	phases := map[string]string{}
	for _, i := range f.all("") {
		phases[i.ID] = string(i.Phase)
	}
	return phases
}
