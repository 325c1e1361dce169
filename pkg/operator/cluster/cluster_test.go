package cluster_test

import (
	"context"
	"errors"
	"fmt"
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

func TestAllOfAClusterIsMade(t *testing.T) {
	w := begin(t, nil)
	a := w.settled()
	if r := a.cluster.Spec.InfrastructureRef; r.APIGroup != v1beta1.Group || r.Kind != "NstanceCluster" || r.Name != name {
		t.Errorf("infrastructureRef %+v", r)
	}
	if r := a.cluster.Spec.ControlPlaneRef; r.APIGroup != v1beta1.Group || r.Kind != "NstanceControlPlane" || r.Name != name {
		t.Errorf("controlPlaneRef %+v", r)
	}
	if at := a.infra.Spec.ControlPlaneEndpoint; !strings.Contains(w.Config.Host, fmt.Sprintf("%s:%d", at.Host, at.Port)) {
		t.Errorf("endpoint %+v, want that of %s", at, w.Config.Host)
	}
	if s := a.infra.Status; s.Ready == nil || !*s.Ready || s.Initialization.Provisioned == nil || !*s.Initialization.Provisioned {
		t.Errorf("infrastructure %+v", s)
	}
	for _, d := range a.infra.Status.FailureDomains {
		if *d.ControlPlane {
			t.Errorf("shard %s takes control planes", d.Name)
		}
	}
	if s := a.control.Status; !*s.ExternalManagedControlPlane || !*s.Initialization.ControlPlaneInitialized {
		t.Errorf("control plane %+v", s)
	}
}

func TestWhatIsAsItShouldBeIsNotWritten(t *testing.T) {
	w := begin(t, nil)
	was := w.settled().versions()
	planetest.Consistently(t, time.Second, "nothing is written", func(ctx context.Context) error {
		w.shards.tell()
		a, err := w.read(ctx)
		if err == nil && !slices.Equal(a.versions(), was) {
			err = fmt.Errorf("versions %v, were %v", a.versions(), was)
		}
		return err
	})
	w.stop()
	w.start() // an operator that starts anew finds all in order, too
	planetest.Consistently(t, time.Second, "nothing is written", func(ctx context.Context) error {
		w.shards.tell()
		a, err := w.read(ctx)
		if err == nil && !slices.Equal(a.versions(), was) {
			err = fmt.Errorf("versions %v, were %v", a.versions(), was)
		}
		return err
	})
}

// What is said of the shards is what is known of them now, also of those that the
// configuration names from now on.
func TestShardsThatCantBeReachedAreNamed(t *testing.T) {
	world := shardstest.Start(t, "a", "b")
	w := begin(t, func(r *cluster.Reconciler) { r.Shards = world.Set })
	told := func(status metav1.ConditionStatus, message string, domains ...string) {
		t.Helper()
		planetest.Eventually(t, soon, fmt.Sprintf("ShardReachable is %s of %v", status, domains), func(ctx context.Context) error {
			a, err := w.read(ctx)
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
	told(metav1.ConditionTrue, "", "a", "b")
	world.Shard("b").Stop()
	told(metav1.ConditionFalse, "not reachable: b", "a", "b")
	world.Add("c")
	world.Configure("a", "b", "c")
	told(metav1.ConditionFalse, "not reachable: b", "a", "b", "c")
	world.Shard("b").Start()
	told(metav1.ConditionTrue, "", "a", "b", "c")
	world.Configure("c")
	told(metav1.ConditionTrue, "", "c")
}

// A shard that was not asked yet is no reason to take back what is told.
func TestWhatIsNotKnownIsNotTold(t *testing.T) {
	w := begin(t, nil)
	was := w.settled()
	w.shards.set("a", shards.State{})
	w.shards.set("b", shards.State{Err: errors.New("refused")})
	planetest.Consistently(t, time.Second, "nothing is told", func(ctx context.Context) error {
		a, err := w.read(ctx)
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

func TestWhatIsDeletedAloneIsMadeAgain(t *testing.T) {
	w := begin(t, nil)
	was := w.settled()
	w.delete(&was.infra)
	w.delete(&was.control)
	planetest.Eventually(t, soon, "they are there again", func(ctx context.Context) error {
		a, err := w.read(ctx)
		if err == nil && (a.infra.UID == was.infra.UID || a.control.UID == was.control.UID || len(a.infra.Finalizers) == 0) {
			err = errors.New("not yet")
		}
		return err
	})
	if is := w.settled(); is.secret.ResourceVersion != was.secret.ResourceVersion {
		t.Error("the kubeconfig was written")
	}
}

// A pause holds everything, but a kubeconfig that is in use goes on to work.
func TestPausedIsLeftAlone(t *testing.T) {
	w := begin(t, nil)
	a := w.settled()
	w.patch(&a.cluster, func() { a.cluster.Spec.Paused = new(true) })
	paused := func(want bool) {
		t.Helper()
		planetest.Eventually(t, soon, "Paused is told", func(ctx context.Context) error {
			b, err := w.read(ctx)
			infra, control := is(b.infra.Status.Conditions, v1beta1.ConditionPaused), is(b.control.Status.Conditions, v1beta1.ConditionPaused)
			if err == nil && (infra != want || control != want) {
				err = fmt.Errorf("%+v", b.infra.Status.Conditions)
			}
			return err
		})
	}
	paused(true)
	w.shards.set("c", shards.State{Reachable: true})
	w.delete(&a.secret)
	planetest.Consistently(t, time.Second, "nothing is made and nothing told", func(ctx context.Context) error {
		var infra v1beta1.NstanceCluster
		if err := w.Client.Get(ctx, w.key(name), &infra); err != nil || len(infra.Status.FailureDomains) != 2 {
			return fmt.Errorf("%+v: %w", infra.Status.FailureDomains, err)
		}
		var secret corev1.Secret
		if err := w.Client.Get(ctx, w.key(capi.KubeconfigName(name)), &secret); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the Secret: %w", err)
		}
		return nil
	})
	w.patch(&a.cluster, func() { a.cluster.Spec.Paused = nil })
	w.settled()
	paused(false)
}

// Deleting the Cluster keeps the way to it until the pools are gone, and it does not
// come back by itself.
func TestADeletedClusterIsLetGo(t *testing.T) {
	w := begin(t, nil)
	a := w.settled()
	pool := &v1beta1.NstanceMachinePool{
		ObjectMeta: w.meta("web"), Spec: v1beta1.NstanceMachinePoolSpec{Group: "web", Shards: []v1beta1.Name{"a"}},
	}
	w.make(pool)
	w.patch(&a.cluster, func() { a.cluster.Finalizers = []string{clusterv1.ClusterFinalizer} }) // as Cluster API's core does
	w.delete(&a.cluster)
	w.delete(&a.control)
	w.delete(&a.infra)
	planetest.Consistently(t, time.Second, "the kubeconfig stays", func(ctx context.Context) error {
		w.shards.tell()
		return errors.Join(w.Client.Get(ctx, w.key(name), &a.infra), w.Client.Get(ctx, w.key(capi.KubeconfigName(name)), &a.secret))
	})
	token := string(a.secret.Data["value"])
	w.later(45 * time.Minute)
	planetest.Eventually(t, soon, "the token is renewed", func(ctx context.Context) error {
		err := w.Client.Get(ctx, w.key(capi.KubeconfigName(name)), &a.secret)
		if err == nil && string(a.secret.Data["value"]) == token {
			err = errors.New("the same")
		}
		return err
	})
	w.delete(pool)
	gone := func(ctx context.Context, of ...client.Object) error {
		for _, o := range of {
			if err := w.Client.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object)); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T is there: %w", o, err)
			}
		}
		return nil
	}
	planetest.Eventually(t, soon, "kubeconfig and infrastructure go", func(ctx context.Context) error {
		return gone(ctx, &a.infra, &a.secret)
	})
	w.patch(&a.cluster, func() { a.cluster.Finalizers = nil })
	planetest.Consistently(t, time.Second, "nothing comes back", func(ctx context.Context) error {
		w.shards.tell()
		return gone(ctx, &a.infra, &a.control, &a.secret)
	})
	w.stop()
	w.start()
	w.settled()
}

func TestAnAdministratorsKubeconfigIsNotTouched(t *testing.T) {
	w := begin(t, func(r *cluster.Reconciler) { r.Endpoint = "https://api.example.com:6443" })
	available := func(status metav1.ConditionStatus, message string) {
		t.Helper()
		planetest.Eventually(t, soon, "Available is "+string(status), func(ctx context.Context) error {
			var control v1beta1.NstanceControlPlane
			err := w.Client.Get(ctx, w.key(name), &control)
			if c := condition(control.Status.Conditions, clusterv1.AvailableCondition); err == nil && (c.Status != status || c.Message != message) {
				err = fmt.Errorf("%+v", c)
			}
			return err
		})
	}
	available(metav1.ConditionFalse, "Secret prod--default-kubeconfig is missing: with NSTANCE_CAPI_ENDPOINT an administrator makes it")
	secret := &corev1.Secret{ObjectMeta: w.meta(capi.KubeconfigName(name)), Data: map[string][]byte{"value": []byte("mine")}}
	w.make(secret)
	available(metav1.ConditionTrue, "")
	a := w.settled()
	if want := (clusterv1.APIEndpoint{Host: "api.example.com", Port: 6443}); a.infra.Spec.ControlPlaneEndpoint != want {
		t.Errorf("endpoint %+v", a.infra.Spec.ControlPlaneEndpoint)
	}
	w.delete(&a.cluster)
	w.delete(&a.infra)
	planetest.Eventually(t, soon, "the infrastructure goes", func(ctx context.Context) error {
		if err := w.Client.Get(ctx, w.key(name), &a.infra); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil || string(secret.Data["value"]) != "mine" {
		t.Errorf("the administrator's Secret: %v %s", err, secret.Data)
	}
}
