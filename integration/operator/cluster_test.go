//go:build integration

package operator

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/bootstrap"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/cluster"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/shards"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
)

// The Cluster that the operator creates is available with the token that it provides, groups become
// MachinePools that Cluster API accepts, and the Cluster's deletion removes all of it, the access
// to its API server last.
func TestAClusterFromItsBeginningToItsEnd(t *testing.T) {
	plane := shared.Plane(t)
	ns, name := plane.Namespace(t), capi.ClusterName("prod", "default")
	allowWorkload(t, plane, ns, "nstance-capi-workload")
	world := shardstest.Start(t, "one", "two")
	world.Shard("one").AddGroup("web", 1, "knd")
	world.Shard("two").AddGroup("web", 1, "knd")
	startCluster(t, plane, ns, name, world.Set)
	key := client.ObjectKey{Namespace: ns, Name: name}
	var c clusterv1.Cluster
	planetest.Eventually(t, soon, "the Cluster is available", func(ctx context.Context) error {
		if err := plane.Client.Get(ctx, key, &c); err != nil {
			return err
		}
		if c.Status.Phase != string(clusterv1.ClusterPhaseProvisioned) || !is(c.Status.Conditions, clusterv1.ClusterAvailableCondition) {
			return fmt.Errorf("phase %s, %s", c.Status.Phase, told(c.Status.Conditions))
		}
		return nil
	})
	if d := c.Status.FailureDomains; len(d) != 2 || d[0].Name != "one" || d[1].Name != "two" {
		t.Errorf("failure domains %+v", d)
	}
	if !c.Spec.ControlPlaneEndpoint.IsValid() {
		t.Errorf("endpoint %+v", c.Spec.ControlPlaneEndpoint)
	}
	planetest.Eventually(t, soon, "Cluster API takes the pool", func(ctx context.Context) error {
		var pool v1beta1.NstanceMachinePool
		var owner clusterv1.MachinePool
		of := client.ObjectKey{Namespace: ns, Name: "web"}
		if err := errors.Join(plane.Client.Get(ctx, of, &pool), plane.Client.Get(ctx, of, &owner)); err != nil {
			return err
		}
		if !metav1.IsControlledBy(&pool, &owner) || owner.Status.Phase == "" || *owner.Spec.Replicas != 2 {
			return fmt.Errorf("owned by %v, phase %s, %s", pool.OwnerReferences, owner.Status.Phase, told(owner.Status.Conditions))
		}
		return nil
	})

	if err := plane.Client.Delete(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	gone := func(ctx context.Context) error {
		meta := metav1.ObjectMeta{Namespace: ns, Name: name}
		for _, o := range []client.Object{
			&clusterv1.Cluster{ObjectMeta: meta}, &v1beta1.NstanceCluster{ObjectMeta: meta}, &v1beta1.NstanceControlPlane{ObjectMeta: meta},
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: capi.KubeconfigName(name)}},
			&clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}},
			&v1beta1.NstanceMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}},
		} {
			if err := plane.Client.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T %s is there: %w", o, o.GetName(), err)
			}
		}
		return nil
	}
	planetest.Eventually(t, soon, "all of it goes", gone)
	planetest.Consistently(t, 2*time.Second, "nothing comes back", gone)
}

// startCluster runs the controllers of Cluster and import, with the permissions that they declare.
func startCluster(t *testing.T, plane *planetest.Plane, ns, name string, set *shards.Set) {
	t.Helper()
	names := map[string][]string{"example-cluster--default-kubeconfig": {capi.KubeconfigName(name)}}
	config := plane.AllowedNames(t, ns, names, "../../pkg/operator/cluster", "../../pkg/operator/bootstrap")
	options := plane.ManagerOptions(ns)
	options.Cache.ByObject = capi.Cache(name)
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		t.Fatal(err)
	}
	keep := &cluster.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Config: config, Shards: set, Now: time.Now,
		Namespace: ns, Name: name, ServiceAccount: "nstance-capi-workload", Lifetime: time.Hour,
	}
	begin := &bootstrap.Reconciler{
		Client: mgr.GetClient(), Shards: set, Recorder: mgr.GetEventRecorder("nstance-operator"), Namespace: ns, Cluster: name,
	}
	if err := errors.Join(keep.SetupWithManager(mgr), begin.SetupWithManager(mgr)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// allowWorkload creates the ServiceAccount whose tokens Cluster API gets, with the permissions that
// it needs in a workload cluster. It requests "/" to check the connection.
func allowWorkload(t *testing.T, plane *planetest.Plane, ns, account string) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: ns}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch", "patch", "update", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"pods", "namespaces"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"persistentvolumes", "persistentvolumeclaims"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments"}, Verbs: []string{"get", "list", "watch"}},
		{NonResourceURLs: []string{"/"}, Verbs: []string{"get"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ns},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: account}},
	}
	for _, o := range []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: account}}, role, binding} {
		if err := plane.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}
