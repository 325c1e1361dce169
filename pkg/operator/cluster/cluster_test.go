package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/cluster"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/shards"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
)

func TestClusterObjectsAreCreated(t *testing.T) {
	f := newFixture(t, nil)
	a := f.awaitReady()
	if r := a.cluster.Spec.InfrastructureRef; r.APIGroup != v1beta1.Group || r.Kind != "NstanceCluster" || r.Name != name {
		t.Errorf("infrastructureRef %+v", r)
	}
	if r := a.cluster.Spec.ControlPlaneRef; r.APIGroup != v1beta1.Group || r.Kind != "NstanceControlPlane" || r.Name != name {
		t.Errorf("controlPlaneRef %+v", r)
	}
	if at := a.infra.Spec.ControlPlaneEndpoint; !strings.Contains(f.Config.Host, fmt.Sprintf("%s:%d", at.Host, at.Port)) {
		t.Errorf("endpoint %+v, want that of %s", at, f.Config.Host)
	}
	if s := a.infra.Status; s.Ready == nil || !*s.Ready || s.Initialization.Provisioned == nil || !*s.Initialization.Provisioned {
		t.Errorf("infrastructure %+v", s)
	}
	for _, d := range a.infra.Status.FailureDomains {
		if *d.ControlPlane {
			t.Errorf("shard %s is a failure domain for control planes", d.Name)
		}
	}
	if s := a.control.Status; !*s.ExternalManagedControlPlane || !*s.Initialization.ControlPlaneInitialized {
		t.Errorf("control plane %+v", s)
	}
}

func TestNoWritesWithoutChanges(t *testing.T) {
	f := newFixture(t, nil)
	was := f.atRest().versions()
	f.stop()
	f.start() // a new operator writes nothing either
	planetest.Consistently(t, time.Second, "nothing is written", func(ctx context.Context) error {
		f.shards.Reconnect()
		a, err := f.read(ctx)
		if is := a.versions(); err == nil && !maps.Equal(is, was) {
			err = errors.New(planetest.Differences(was, is))
		}
		return err
	})
}

// ShardReachable and the failure domains follow the state of the shards, also of newly
// configured ones.
func TestShardReachableFollowsShards(t *testing.T) {
	f := newFixture(t, nil)
	awaitStatus := func(status metav1.ConditionStatus, message string, domains ...string) {
		t.Helper()
		planetest.Eventually(t, soon, fmt.Sprintf("ShardReachable is %s of %v", status, domains), func(ctx context.Context) error {
			a, err := f.read(ctx)
			if err != nil {
				return err
			}
			if c := condition(a.infra.Status.Conditions, v1beta1.ConditionShardReachable); c.Status != status || c.Message != message {
				return fmt.Errorf("%+v", c)
			}
			if !slices.Equal(names(a.infra.Status.FailureDomains), domains) || !is(a.infra.Status.Conditions, v1beta1.ConditionReady) {
				return fmt.Errorf("%+v", a.infra.Status)
			}
			return nil
		})
	}
	awaitStatus(metav1.ConditionTrue, "", "a", "b")
	f.shards.Shard("b").Stop()
	awaitStatus(metav1.ConditionFalse, "not reachable: b", "a", "b")
	f.shards.Add("c")
	f.shards.Configure("a", "b", "c")
	awaitStatus(metav1.ConditionFalse, "not reachable: b", "a", "b", "c")
	f.shards.Shard("b").Start()
	awaitStatus(metav1.ConditionTrue, "", "a", "b", "c")
	f.shards.Configure("c")
	awaitStatus(metav1.ConditionTrue, "", "c")
}

// A shard that was never connected does not change the condition.
func TestUnknownShardsChangeNoStatus(t *testing.T) {
	f := newFixture(t, nil)
	was := f.atRest()
	f.stop()
	f.shards = shardstest.New(t, func(c *shards.Config) { c.Timeout = time.Hour }, "a", "b")
	f.shards.Shard("a").Hang()
	f.shards.Shard("b").Stop()
	f.shards.Run()
	f.shards.Heard()
	f.start()
	planetest.Consistently(t, time.Second, "the status is not written", func(ctx context.Context) error {
		a, err := f.read(ctx)
		if err == nil && a.infra.ResourceVersion != was.infra.ResourceVersion {
			err = fmt.Errorf("%+v", a.infra.Status)
		}
		return err
	})
}

func names(domains []clusterv1.FailureDomain) (all []string) {
	for _, d := range domains {
		all = append(all, d.Name)
	}
	return all
}

func TestDeletedObjectsAreRecreated(t *testing.T) {
	f := newFixture(t, nil)
	was := f.awaitReady()
	f.delete(&was.infra)
	f.delete(&was.control)
	planetest.Eventually(t, soon, "they are recreated", func(ctx context.Context) error {
		a, err := f.read(ctx)
		if err == nil && (a.infra.UID == was.infra.UID || a.control.UID == was.control.UID || len(a.infra.Finalizers) == 0) {
			err = errors.New("not recreated yet")
		}
		return err
	})
	if is := f.awaitReady(); is.secret.ResourceVersion != was.secret.ResourceVersion {
		t.Error("the kubeconfig was written")
	}
}

// While paused, nothing is reconciled; a kubeconfig in use stays valid.
func TestPaused(t *testing.T) {
	f := newFixture(t, nil)
	a := f.awaitReady()
	f.patch(&a.cluster, func() { a.cluster.Spec.Paused = new(true) })
	awaitPaused := func(want bool) {
		t.Helper()
		planetest.Eventually(t, soon, "the condition Paused", func(ctx context.Context) error {
			b, err := f.read(ctx)
			infra, control := is(b.infra.Status.Conditions, v1beta1.ConditionPaused), is(b.control.Status.Conditions, v1beta1.ConditionPaused)
			if err == nil && (infra != want || control != want) {
				err = fmt.Errorf("%+v", b.infra.Status.Conditions)
			}
			return err
		})
	}
	awaitPaused(true)
	f.shards.Add("c")
	f.shards.Configure("a", "b", "c")
	f.delete(&a.secret)
	planetest.Consistently(t, time.Second, "no object is created and no status is written", func(ctx context.Context) error {
		var infra v1beta1.NstanceCluster
		if err := f.Client.Get(ctx, f.key(name), &infra); err != nil || len(infra.Status.FailureDomains) != 2 {
			return fmt.Errorf("%+v: %w", infra.Status.FailureDomains, err)
		}
		var secret corev1.Secret
		if err := f.Client.Get(ctx, f.key(capi.KubeconfigName(name)), &secret); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the Secret: %w", err)
		}
		return nil
	})
	f.patch(&a.cluster, func() { a.cluster.Spec.Paused = nil })
	f.awaitReady()
	awaitPaused(false)
}

// After the Cluster's deletion the kubeconfig stays until the pools are gone, and the Cluster
// is not created again until the operator restarts.
func TestClusterDeletion(t *testing.T) {
	f := newFixture(t, nil)
	a := f.awaitReady()
	pool := &v1beta1.NstanceMachinePool{
		ObjectMeta: f.meta("web"), Spec: v1beta1.NstanceMachinePoolSpec{Group: "web", Shards: []v1beta1.Name{"a"}},
	}
	f.create(pool)
	f.patch(&a.cluster, func() { a.cluster.Finalizers = []string{clusterv1.ClusterFinalizer} }) // as Cluster API's core does
	f.delete(&a.cluster)
	f.awaitCached(&a.cluster) // otherwise the deleted objects below would be recreated
	f.delete(&a.control)
	f.delete(&a.infra)
	planetest.Consistently(t, time.Second, "the kubeconfig stays", func(ctx context.Context) error {
		f.shards.Reconnect()
		return errors.Join(f.Client.Get(ctx, f.key(name), &a.infra), f.Client.Get(ctx, f.key(capi.KubeconfigName(name)), &a.secret))
	})
	token := string(a.secret.Data["value"])
	f.advance(45 * time.Minute)
	planetest.Eventually(t, soon, "the token is renewed", func(ctx context.Context) error {
		err := f.Client.Get(ctx, f.key(capi.KubeconfigName(name)), &a.secret)
		if err == nil && string(a.secret.Data["value"]) == token {
			err = errors.New("the same token")
		}
		return err
	})
	f.delete(pool)
	gone := func(ctx context.Context, of ...client.Object) error {
		for _, o := range of {
			if err := f.Client.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object)); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T exists: %w", o, err)
			}
		}
		return nil
	}
	planetest.Eventually(t, soon, "the kubeconfig and the infrastructure are gone", func(ctx context.Context) error {
		return gone(ctx, &a.infra, &a.secret)
	})
	f.patch(&a.cluster, func() { a.cluster.Finalizers = nil })
	planetest.Consistently(t, time.Second, "nothing is recreated", func(ctx context.Context) error {
		f.shards.Reconnect()
		return gone(ctx, &a.infra, &a.control, &a.secret)
	})
	f.stop()
	f.start()
	f.awaitReady()
}

func TestProvidedKubeconfigIsNotModified(t *testing.T) {
	f := newFixture(t, func(r *cluster.Reconciler) { r.Endpoint = "https://api.example.com:6443" })
	available := func(status metav1.ConditionStatus, message string) {
		t.Helper()
		planetest.Eventually(t, soon, "Available is "+string(status), func(ctx context.Context) error {
			var control v1beta1.NstanceControlPlane
			err := f.Client.Get(ctx, f.key(name), &control)
			if c := condition(control.Status.Conditions, clusterv1.AvailableCondition); err == nil && (c.Status != status || c.Message != message) {
				err = fmt.Errorf("%+v", c)
			}
			return err
		})
	}
	available(metav1.ConditionFalse, "Secret prod--default-kubeconfig is missing: create it, since NSTANCE_CAPI_ENDPOINT is set")
	secret := &corev1.Secret{ObjectMeta: f.meta(capi.KubeconfigName(name)), Data: map[string][]byte{"value": []byte("mine")}}
	f.create(secret)
	available(metav1.ConditionTrue, "")
	a := f.awaitReady()
	if want := (clusterv1.APIEndpoint{Host: "api.example.com", Port: 6443}); a.infra.Spec.ControlPlaneEndpoint != want {
		t.Errorf("endpoint %+v", a.infra.Spec.ControlPlaneEndpoint)
	}
	f.delete(&a.cluster)
	f.awaitCached(&a.cluster) // otherwise the deleted infrastructure would be recreated
	f.delete(&a.infra)
	planetest.Eventually(t, soon, "the infrastructure is gone", func(ctx context.Context) error {
		if err := f.Client.Get(ctx, f.key(name), &a.infra); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it exists: %w", err)
		}
		return nil
	})
	if err := f.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil || string(secret.Data["value"]) != "mine" {
		t.Errorf("the administrator's Secret: %v %s", err, secret.Data)
	}
}
