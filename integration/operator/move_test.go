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

// TestMove: clusterctl moves a tenant from a management cluster into the cluster that
// its nodes are of. Every object gets there, none stays, no instance comes or goes; and
// the operator there goes on with what it finds, though status and UIDs are lost. The
// other one runs until all is gone, and does no harm; then it can be removed.
func TestMove(t *testing.T) {
	to := beginAlone(t)
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

// TestMoveOut: the other way, from a cluster that manages itself to one that manages it
// from outside, by a kubeconfig that somebody puts there.
func TestMoveOut(t *testing.T) {
	from := beginAlone(t)
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

// moves has clusterctl move all of a tenant: these objects.
func (w *world) moves(to *world, objects []string) {
	w.Helper()
	began := time.Now()
	clusterctl(w.T, w.bin, "move", "--namespace", w.namespace,
		"--kubeconfig", filepath.Join(w.temp, "kubeconfig"), "--to-kubeconfig", filepath.Join(to.temp, "kubeconfig"))
	w.Logf("moved %d objects in %v", len(objects), time.Since(began).Round(time.Second))
	if left := w.kinds(); len(left) > 0 {
		w.Errorf("left behind: %v", left)
	}
	if moved := to.kinds(); !slices.Equal(moved, objects) {
		w.Errorf("moved %v\nwant  %v", moved, objects)
	}
}

// way is the Secret with an administrator's way to the cluster that has the nodes.
func (w *world) way() *corev1.Secret {
	way := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: capi.KubeconfigName(clusterName)}}
	way.Type, way.Labels = clusterv1.ClusterSecretType, map[string]string{clusterv1.ClusterNameLabel: clusterName}
	way.Data = map[string][]byte{"value": w.plane.Kubeconfig()}
	return way
}

// management is another cluster with Cluster API and an operator, which has the
// instances' nodes elsewhere: where w is.
func (w *world) management() *world {
	w.Helper()
	plane := planetest.Core(w.T)
	m := &world{T: w.T, plane: plane, api: plane.Client, namespace: w.namespace, bin: w.bin, temp: w.TempDir(), env: w.env, config: w.config}
	m.write("kubeconfig", plane.Kubeconfig())
	m.write(filepath.Join("logs", "operator.log"), nil)
	m.install()
	m.vars = []string{"NSTANCE_CAPI_ENDPOINT=" + w.plane.Config.Host}
	var ca corev1.ConfigMap
	if err := w.get(w.Context(), "nstance-cluster-ca", &ca); err != nil {
		w.Fatal(err)
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: m.namespace, Name: name} }
	for _, o := range []client.Object{
		w.way(), &corev1.ConfigMap{ObjectMeta: named(ca.Name), Data: ca.Data},
		&corev1.Secret{ObjectMeta: named("nstance-operator-nonce"), Data: map[string][]byte{"nonce.jwt": m.admin("cluster", "nonce")}},
	} {
		if err := m.api.Create(m.Context(), o); err != nil {
			m.Fatal(err)
		}
	}
	return m
}

// install applies config/default, and has the operator be what its pod would be: nothing
// here runs Deployments.
func (w *world) install() {
	w.Helper()
	base, err := filepath.Rel(w.temp, filepath.Join(root(w.T), "config", "default"))
	if err != nil {
		w.Fatal(err)
	}
	w.write("kustomization.yaml", []byte("namespace: "+w.namespace+"\nresources: ["+base+"]\n"))
	w.kubectl("apply", "-k", w.temp)
	w.token("nstance-operator")
}

// token has the operator be a ServiceAccount, by a token as its pod would have it.
func (w *world) token(account string) {
	w.Helper()
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: account}}
	var request authenticationv1.TokenRequest
	if err := w.api.SubResource("token").Create(w.Context(), of, &request); err != nil {
		w.Fatal(err)
	}
	config, err := clientcmd.Load(w.plane.Kubeconfig())
	if err != nil {
		w.Fatal(err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	}
	text, err := clientcmd.Write(*config)
	if err != nil {
		w.Fatal(err)
	}
	w.write("operator.kubeconfig", text)
}

func (w *world) kubectl(args ...string) {
	w.Helper()
	w.run(filepath.Join(planetest.Folder(w.T), "kubectl"), append(args, "--kubeconfig", filepath.Join(w.temp, "kubeconfig"))...)
}

// onNodes waits until every machine of a pool has its node, without which clusterctl
// moves nothing.
func (w *world) onNodes(pool string, replicas int) {
	w.Helper()
	w.eventually("each Machine has a node", func(ctx context.Context) error {
		machines, err := w.machines(ctx, pool)
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

// kinds are the objects of Cluster API and of the provider, by kind and name.
func (w *world) kinds() (names []string) {
	w.Helper()
	for _, gvk := range []schema.GroupVersionKind{
		clusterv1.GroupVersion.WithKind("Cluster"), clusterv1.GroupVersion.WithKind("MachinePool"), clusterv1.GroupVersion.WithKind("Machine"),
		v1beta1.GroupVersion().WithKind("NstanceCluster"), v1beta1.GroupVersion().WithKind("NstanceControlPlane"),
		v1beta1.GroupVersion().WithKind("NstanceMachinePool"), v1beta1.GroupVersion().WithKind("NstanceShardGroup"),
		v1beta1.GroupVersion().WithKind("NstanceMachine"),
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		if err := w.api.List(w.Context(), list, client.InNamespace(w.namespace)); err != nil {
			w.Fatal(err)
		}
		for _, o := range list.Items {
			names = append(names, gvk.Kind+" "+o.GetName())
		}
	}
	slices.Sort(names)
	return names
}

// ids are all instances that there are or were, with their phases.
func (w *world) ids() map[string]string {
	w.Helper()
	phases := map[string]string{}
	for _, i := range w.all("") {
		phases[i.ID] = i.Phase
	}
	return phases
}
