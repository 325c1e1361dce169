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

func TestTheKubeconfigWorks(t *testing.T) {
	w := begin(t, nil)
	a := w.settled()
	if a.secret.Type != clusterv1.ClusterSecretType || a.secret.Labels[clusterv1.ClusterNameLabel] != name ||
		len(a.secret.OwnerReferences) != 0 {
		t.Errorf("the Secret is %s, %v, owned by %v", a.secret.Type, a.secret.Labels, a.secret.OwnerReferences)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(a.secret.Data["value"])
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	me := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(t.Context(), me); err != nil {
		t.Fatal(err)
	}
	if want := "system:serviceaccount:" + w.ns + ":" + account; me.Status.UserInfo.Username != want {
		t.Errorf("it is the way of %s, want %s", me.Status.UserInfo.Username, want)
	}
}

// The token is another one after two thirds of its time, whatever the clocks say, and
// not before.
func TestATokenIsRenewedInTime(t *testing.T) {
	w := begin(t, nil)
	first := w.settled().secret
	renewed := func(ctx context.Context) error {
		a, err := w.read(ctx)
		if err == nil && a.secret.ResourceVersion == first.ResourceVersion {
			err = errors.New("the same")
		}
		return err
	}
	stays := func(ctx context.Context) error {
		if err := renewed(ctx); err == nil {
			return errors.New("it was renewed")
		}
		return nil
	}
	w.later(39 * time.Minute)
	planetest.Consistently(t, time.Second, "the token stays", stays)
	w.later(2 * time.Minute)
	planetest.Eventually(t, soon, "the token is renewed", renewed)
	first = w.settled().secret

	// Our clock is 41 minutes ahead by now: the token does not look too old for that.
	w.later(38 * time.Minute)
	planetest.Consistently(t, time.Second, "the token stays", stays)

	// The next operator's clock is behind: it can't say how old the token is.
	w.stop()
	w.mu.Lock()
	w.now = time.Now().Add(-time.Hour)
	w.mu.Unlock()
	w.start()
	planetest.Eventually(t, soon, "the token is renewed", renewed)
	first = w.settled().secret
	w.later(39 * time.Minute)
	planetest.Consistently(t, time.Second, "the token stays", stays)
}

func TestTheKubeconfigIsMended(t *testing.T) {
	w := begin(t, nil)
	for _, c := range []struct {
		name string
		harm func(*corev1.Secret)
	}{
		{"deleted", func(s *corev1.Secret) { w.delete(s) }},
		{"nonsense", func(s *corev1.Secret) { w.patch(s, func() { s.Data["value"] = []byte("{") }) }},
		{"empty", func(s *corev1.Secret) { w.patch(s, func() { s.Data = nil }) }},
		{"no label", func(s *corev1.Secret) { w.patch(s, func() { s.Labels = nil }) }},
	} {
		a := w.settled()
		was := string(a.secret.Data["value"])
		c.harm(&a.secret)
		planetest.Eventually(t, soon, c.name+": it is mended", func(ctx context.Context) error {
			b, err := w.read(ctx)
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

// TestOnlyNamesOfSecretsAreHeld: the namespace may have many of others, and large ones.
func TestOnlyNamesOfSecretsAreHeld(t *testing.T) {
	w := begin(t, nil)
	w.settled()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, accept := range w.secrets {
		if !strings.Contains(accept, "as=PartialObjectMetadata") {
			t.Errorf("Secrets were asked for as %s", accept)
		}
	}
	if len(w.secrets) == 0 {
		t.Error("nobody looks for changes of the Secret")
	}
}

func TestAMissingServiceAccountIsTold(t *testing.T) {
	w := begin(t, func(r *cluster.Reconciler) { r.ServiceAccount = "missing" })
	planetest.Eventually(t, soon, "it is told", func(ctx context.Context) error {
		var control v1beta1.NstanceControlPlane
		err := w.Client.Get(ctx, w.key(name), &control)
		c := condition(control.Status.Conditions, clusterv1.AvailableCondition)
		if err == nil && (c.Status != metav1.ConditionFalse || c.Message != "no token of ServiceAccount missing: NotFound") {
			err = fmt.Errorf("%+v", c)
		}
		return err
	})
	w.make(&corev1.ServiceAccount{ObjectMeta: w.meta("missing")})
	w.settled()
}

func TestAnEndpointThatIsNoneIsRefused(t *testing.T) {
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
