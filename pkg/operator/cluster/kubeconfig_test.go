package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/cluster"
	"github.com/nstance/nstance/pkg/operator/planetest"
)

func TestKubeconfig(t *testing.T) {
	f := newFixture(t, nil)
	a := f.awaitReady()
	if a.secret.Type != clusterv1.ClusterSecretType || a.secret.Labels[clusterv1.ClusterNameLabel] != name ||
		len(a.secret.OwnerReferences) != 0 {
		t.Errorf("the Secret is %s, %v, owned by %v", a.secret.Type, a.secret.Labels, a.secret.OwnerReferences)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(a.secret.Data["value"])
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: f.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	me := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(t.Context(), me); err != nil {
		t.Fatal(err)
	}
	if want := "system:serviceaccount:" + f.ns + ":" + account; me.Status.UserInfo.Username != want {
		t.Errorf("it authenticates as %s, want %s", me.Status.UserInfo.Username, want)
	}
}

// The token is renewed after two thirds of its lifetime, whatever the clocks say, and not
// before.
func TestTokenRenewal(t *testing.T) {
	f := newFixture(t, nil)
	first := f.awaitReady().secret
	renewed := func(ctx context.Context) error {
		a, err := f.read(ctx)
		if err == nil && a.secret.ResourceVersion == first.ResourceVersion {
			err = errors.New("the same token")
		}
		return err
	}
	stays := func(ctx context.Context) error {
		if err := renewed(ctx); err == nil {
			return errors.New("it was renewed")
		}
		return nil
	}
	f.advance(39 * time.Minute)
	planetest.Consistently(t, time.Second, "the token stays", stays)
	f.advance(2 * time.Minute)
	planetest.Eventually(t, soon, "the token is renewed", renewed)
	first = f.awaitReady().secret

	// The operator's clock is now 41 minutes ahead: the new token does not count as that old.
	f.advance(38 * time.Minute)
	planetest.Consistently(t, time.Second, "the token stays", stays)

	// The clock of the next operator is behind, so the token's age is unknown.
	f.stop()
	f.mu.Lock()
	f.now = time.Now().Add(-time.Hour)
	f.mu.Unlock()
	f.start()
	planetest.Eventually(t, soon, "the token is renewed", renewed)
	first = f.awaitReady().secret
	f.advance(39 * time.Minute)
	planetest.Consistently(t, time.Second, "the token stays", stays)
}

func TestKubeconfigIsRepaired(t *testing.T) {
	f := newFixture(t, nil)
	for _, c := range []struct {
		name   string
		damage func(*corev1.Secret)
	}{
		{"deleted", func(s *corev1.Secret) { f.delete(s) }},
		{"invalid", func(s *corev1.Secret) { f.patch(s, func() { s.Data["value"] = []byte("{") }) }},
		{"empty", func(s *corev1.Secret) { f.patch(s, func() { s.Data = nil }) }},
		{"no label", func(s *corev1.Secret) { f.patch(s, func() { s.Labels = nil }) }},
	} {
		a := f.awaitReady()
		was := string(a.secret.Data["value"])
		c.damage(&a.secret)
		planetest.Eventually(t, soon, c.name+": it is repaired", func(ctx context.Context) error {
			b, err := f.read(ctx)
			if err != nil {
				return err
			}
			if b.secret.Labels[clusterv1.ClusterNameLabel] != name || string(b.secret.Data["value"]) == was && c.name != "no label" {
				return fmt.Errorf("%v, %d bytes", b.secret.Labels, len(b.secret.Data["value"]))
			}
			_, err = clientcmd.RESTConfigFromKubeConfig(b.secret.Data["value"])
			return err
		})
	}
}

// TestSecretsAreCachedAsMetadata: the namespace may have many other Secrets, and large ones.
func TestSecretsAreCachedAsMetadata(t *testing.T) {
	f := newFixture(t, nil)
	f.awaitReady()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, accept := range f.secrets {
		if !strings.Contains(accept, "as=PartialObjectMetadata") {
			t.Errorf("Secrets were requested as %s", accept)
		}
	}
	if len(f.secrets) == 0 {
		t.Error("Secrets are not watched")
	}
}

func TestMissingServiceAccount(t *testing.T) {
	f := newFixture(t, func(r *cluster.Reconciler) { r.ServiceAccount = "missing" })
	planetest.Eventually(t, soon, "the condition Available", func(ctx context.Context) error {
		var control v1beta1.NstanceControlPlane
		err := f.Client.Get(ctx, f.key(name), &control)
		c := condition(control.Status.Conditions, clusterv1.AvailableCondition)
		if err == nil && (c.Status != metav1.ConditionFalse || c.Message != "no token of ServiceAccount missing: NotFound") {
			err = fmt.Errorf("%+v", c)
		}
		return err
	})
	f.create(&corev1.ServiceAccount{ObjectMeta: f.meta("missing")})
	f.awaitReady()
}

func TestEndpointValidation(t *testing.T) {
	for at, refused := range map[string]bool{
		"https://api.example.com:6443": false, "api.example.com": false, "10.0.0.1:6443": false, "https://[fd00::1]:6443/": false,
		"ftp://api": true, "https://:6443": true, "https://api:0": true, "https://api:65536": true, "https://a b": true,
	} {
		r := &cluster.Reconciler{Endpoint: at}
		if err := r.Check(); (err != nil) != refused {
			t.Errorf("%s: %v", at, err)
		}
	}
}
